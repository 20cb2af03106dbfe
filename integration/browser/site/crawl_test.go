//go:build builds

package site_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// visitTime bounds one page. Only a browser that hangs needs so long.
const visitTime = 3 * time.Minute

// checkVisits opens every page of main in a browser of a phone's width: nothing fails there, nothing
// is loaded from elsewhere, and no page is wider than the screen.
func checkVisits(t *testing.T, dir string) {
	pages := http.NewServeMux()
	pages.Handle("/", http.FileServer(http.Dir(dir)))
	pages.HandleFunc("/broken.html", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, `<!doctype html><title>broken</title><div style="width: 1000px">wide</div><script>throw new Error("wrong")</script><img src="missing.png">`)
	})
	server := httptest.NewServer(pages)
	defer server.Close()
	b := openBrowser(t, server.URL)
	// What the others must not have can be seen.
	if said := strings.Join(b.visit(t, "/broken.html"), "\n"); !strings.Contains(said, "wrong") || !strings.Contains(said, "missing.png") || !strings.Contains(said, "pixels wide") {
		t.Fatalf("the broken page has only these failures: %s", said)
	}
	visited := 0
	for path := range readPages(t, dir) {
		if strings.HasPrefix(path, "/v0.1/") || strings.HasPrefix(path, "/decisions/") && path != "/decisions/README.html" || path == "/404.html" {
			continue // the same theme, and their links are checked
		}
		visited++
		if said := b.visit(t, path); len(said) > 0 {
			t.Errorf("%s: %s", path, strings.Join(said, "; "))
		}
	}
	if visited < 20 {
		t.Errorf("only %d pages were visited", visited)
	}
}

// browser is a tab, and what has failed on its page.
type browser struct {
	context.Context
	site   string
	mu     sync.Mutex
	failed []string
}

func openBrowser(t *testing.T, site string) *browser {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(needChromium(t)), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{Context: ctx, site: site}
	err := chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.fail("exception: " + e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description)
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" || e.Type == "warning" {
				b.fail(fmt.Sprintf("console: %s", e.Args[0].Value))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == "error" {
				b.fail("log: " + e.Entry.Text + " " + e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if to, err := url.Parse(e.Request.URL); err == nil && strings.HasPrefix(to.Scheme, "http") && "http://"+to.Host != site {
				b.fail("request to " + e.Request.URL)
			}
		}
	})
	if err == nil {
		_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	}
	if err == nil {
		err = chromedp.Do(ctx, chromedp.EmulateViewport(390, 844))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) fail(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failed = append(b.failed, what)
}

// visit opens a page and returns what has failed on it.
func (b *browser) visit(t *testing.T, path string) []string {
	t.Helper()
	b.mu.Lock()
	b.failed = nil
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(b, visitTime)
	defer cancel()
	if err := chromedp.Do(ctx, chromedp.Navigate(b.site+path)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	const settled = `new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(document.documentElement.scrollWidth), 0)))`
	width, err := chromedp.Run(ctx, chromedp.Evaluate[int](settled, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if width > 390 {
		b.failed = append(b.failed, fmt.Sprintf("it is %d pixels wide", width))
	}
	return b.failed
}
