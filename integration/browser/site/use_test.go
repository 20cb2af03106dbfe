//go:build builds

package site_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// until resolves with what probe returns, as soon as that is something. A page can be used when Vue
// has mounted it.
const until = `const until = (probe) => new Promise((done) => {
  const look = () => { const found = probe(); if (found) done(found); else requestAnimationFrame(look) }
  look()
});
const one = (selector) => until(() => document.querySelector(selector));
await until(() => document.querySelector('#app')?.__vue_app__);
`

// search types a word into the site's search, and returns the addresses that it finds.
const search = `(async () => { ` + until + `
  (await one('.VPNavBarSearch button')).click()
  const input = await one('.VPLocalSearchBox .search-input')
  input.value = 'misfire_grace_time'
  input.dispatchEvent(new Event('input', {bubbles: true}))
  await one('.VPLocalSearchBox a.result')
  return [...document.querySelectorAll('.VPLocalSearchBox a.result')].map((a) => a.getAttribute('href')).join(' ')
})()`

// appearance switches between light and dark, and returns the background before and after, twice.
const appearance = `(async () => { ` + until + `
  const background = () => getComputedStyle(document.documentElement).getPropertyValue('--vp-c-bg').trim()
  const seen = [background()]
  for (const dark of [!document.documentElement.classList.contains('dark'), document.documentElement.classList.contains('dark')]) {
    (await one('.VPSwitchAppearance')).click()
    await until(() => document.documentElement.classList.contains('dark') === dark)
    seen.push(background())
  }
  return seen.join(' ')
})()`

// checkUse searches the site, and switches it between light and dark, on a large screen.
func checkUse(t *testing.T, dir string) {
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	b := openBrowser(t, server.URL)
	ctx, cancel := context.WithTimeout(b, visitTime)
	defer cancel()
	ask := func(script string) string {
		t.Helper()
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(1280, 900)); err != nil {
			t.Fatal(err)
		}
		if err := chromedp.Do(ctx, chromedp.Navigate(server.URL+"/guide.html")); err != nil {
			t.Fatal(err)
		}
		said, err := chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	if found := ask(search); !strings.Contains(found, "/migration.html#apscheduler") {
		t.Errorf("the search for misfire_grace_time finds %q", found)
	}
	colors := strings.Fields(ask(appearance))
	if len(colors) != 3 || colors[0] == colors[1] || colors[0] != colors[2] {
		t.Errorf("the backgrounds of light, dark and light again are %q", colors)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.failed) > 0 {
		t.Errorf("it fails: %s", strings.Join(b.failed, "; "))
	}
}
