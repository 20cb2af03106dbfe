//go:build long

package browser

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

//go:embed testdata/axe.min.js
var axe string

// pages has the paths of all pages of the dashboard, by names for pictures and messages. Add each new page.
var pages = map[string]string{
	"now": "", "jobs": "jobs", "jobs-filtered": "jobs?state=failing&q=rates", "job": "jobs/invoice-export", "job-day": "jobs/heartbeat?range=day",
	"job-month": "jobs/morning-report", "job-failing": "jobs/currency-rates", "job-paused": "jobs/nightly-backup?zone=job", "job-hostile": "jobs/hostile",
	"trigger": "jobs/invoice-export/trigger", "pause": "jobs/heartbeat/pause", "resume": "jobs/nightly-backup/resume",
	"backfill": "jobs/heartbeat/backfill?from=2026-01-01&to=x", "remove": "jobs/heartbeat/remove",
	"bulk": "jobs:bulk?order=pause&job=heartbeat&job=nightly-backup", "not-found": "nothing/here",
	"slots":        "slots",
	"slot-hostile": "slots/hostile:@%3Cb%3E%22key%22%3C%2Fb%3E", "slot-running": "slots/search-index:@rebuild", "slot-absent": "slots/invoice-export:2026-01-01T00:00:30Z",
	"slot-retry": "slots/hostile:@%3Cb%3E%22key%22%3C%2Fb%3E/retry", "slot-cancel": "slots/search-index:@rebuild/cancel",
	"api": "api", "nodes": "nodes?former=true", "health": "health", "health-verified": "health?verify=1&job=invoice-export", "health-repair": "health/repair?verify=1&job=invoice-export",
	"activity": "activity", "activity-orders": "activity?kind=orders",
	"schedule": "schedule", "schedule-berlin": "schedule?spec=30+2+*+*+*&zone=Europe/Berlin", "schedule-dense": "schedule?spec=*/5+*+*+*+*+*&zone=Australia/Lord_Howe&gap=skip",
	"repair": "jobs/invoice-export/repair?from=2026-01-01T00:00:00Z",
}

// browser starts a Chromium.
func browser(t *testing.T) context.Context {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			program = p
			break
		}
	}
	if program == "" {
		const why = "needs chromium: no Chromium is on this machine"
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), "chromium") {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// tab is an open tab.
type tab struct {
	context.Context
	mu   sync.Mutex
	said []string // errors in the console, and requests to other hosts
}

// open opens a tab of this size.
func open(t *testing.T, browser context.Context, site string, width, height int, theme string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	b := &tab{Context: ctx}
	at, err := url.Parse(site)
	if err != nil {
		t.Fatal(err)
	}
	err = chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.say("exception: " + e.ExceptionDetails.Text + " " + e.ExceptionDetails.Exception.Description)
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" || e.Type == "warning" {
				b.say(fmt.Sprintf("console: %s", e.Args[0].Value))
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == "error" && !strings.Contains(e.Entry.Text, "404 (Not Found)") && !strings.Contains(e.Entry.Text, "400 (Bad Request)") && !strings.Contains(e.Entry.Text, "503 (Service Unavailable)") {
				b.say("log: " + e.Entry.Text + " " + e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if to, err := url.Parse(e.Request.URL); err == nil && to.Scheme != "data" && to.Scheme != "about" && to.Host != at.Host {
				b.say("request to " + e.Request.URL)
			}
		}
	})
	if err == nil {
		_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	}
	if err == nil {
		_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	b.run(t, chromedp.EmulateViewport(int64(width), int64(height)))
	return b
}

func (b *tab) say(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, what)
}

func (b *tab) run(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, natstest.Patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		t.Fatalf("%v; the browser said %q", err, b.said)
	}
}

// ask evaluates a JavaScript expression, which may be a promise.
func ask[T any](t *testing.T, b *tab, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(b, natstest.Patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s: %v", expression[:min(len(expression), 80)], err)
	}
	return v
}

// until waits for a JavaScript expression to be true.
func (b *tab) until(t *testing.T, what, expression string) {
	t.Helper()
	natstest.Eventually(t, what, func() bool {
		yes, err := chromedp.Run(b, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		return err == nil && yes
	})
}

// violations runs axe-core on the page.
func (b *tab) violations(t *testing.T) []string {
	t.Helper()
	ask[int](t, b, axe+";0")
	found := ask[string](t, b, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + (n.any[0] || n.all[0] || n.none[0] || {}).message).join(" | "))))`)
	var all []string
	if err := json.Unmarshal([]byte(found), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func (b *tab) picture(t *testing.T, name string) {
	t.Helper()
	dir := os.Getenv("CRONCE_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	filetest.Write(t, filepath.Join(dir, name+".png"), png)
}

// ready is true when the page is complete, with all that it computes in the background. If the broker of a busy machine
// answers too late, the page says so, and loads itself again.
const ready = `document.querySelector(".problem .code")?.textContent !== "503" && !document.body.hasAttribute("data-away") && document.readyState === "complete" && !document.body.textContent.includes("are being counted") && !document.body.textContent.includes("checks have not ended") && !document.body.textContent.includes("doctor is checking") && !document.querySelector("progress")`

func TestEachPageIsAccessibleQuietAndFitsAPhone(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/ops/cronce")
	for _, look := range []struct {
		name, theme   string
		width, height int
	}{{"light", "light", 1280, 900}, {"dark", "dark", 1280, 900}, {"phone", "dark", 320, 844}} {
		b := open(t, chromium, f.url, look.width, look.height, look.theme)
		for name, path := range pages {
			b.run(t, chromedp.Navigate(f.url+"/"+path))
			b.until(t, name+" to be complete", ready)
			b.picture(t, name+"-"+look.name)
			wide := ask[string](t, b, `document.documentElement.scrollWidth > innerWidth ? [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > innerWidth && !e.closest(".scroll, nav")).map(e => e.outerHTML.slice(0, 120)).slice(0, 5).join(" | ") || "too wide" : ""`)
			if wide != "" {
				t.Errorf("%s in %s scrolls sideways at %d px: %s", name, look.name, look.width, wide)
			}
			for _, v := range b.violations(t) {
				t.Errorf("%s in %s: %s", name, look.name, v)
			}
		}
		b.mu.Lock()
		for _, said := range b.said {
			t.Errorf("in %s: %s", look.name, said)
		}
		b.mu.Unlock()
	}
}
