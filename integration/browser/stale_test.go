//go:build long

package browser

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// A session can end, and a proxy can answer in place of the dashboard, while a page is open.
func TestOpenPageSaysThatItIsOutOfDateAndComesBack(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	to, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	var status atomic.Int64 // of the proxy's own answer to all requests; 0: it has none
	pages := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: to.Scheme, Host: to.Host})
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := int(status.Load()); s != 0 {
			http.Error(w, "<h1>an answer of the proxy</h1>", s)
			return
		}
		pages.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	b := open(t, chromium, proxy.URL, 1280, 900, "light")
	b.run(t, chromedp.Navigate(proxy.URL+to.Path+"/jobs"))
	b.until(t, "the list", ready)
	for s, want := range map[int64]string{http.StatusUnauthorized: "Your login has ended", http.StatusBadGateway: "The dashboard does not answer"} {
		status.Store(s)
		b.until(t, want, `document.getElementById("notice")?.textContent.includes("`+want+`") && document.querySelector("a[data-row]")`)
		status.Store(0)
		b.until(t, "the page without the notice", `document.getElementById("notice")?.textContent === "" && document.querySelector("a[data-row]")`)
	}
}

func TestSlotPageShowsOutputOfASlotThatStartsLater(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	run, err := f.client.Trigger(t.Context(), "talkative", client.TriggerOptions{Key: "k", At: time.Now().Add(5 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, chromium, f.url, 1280, 900, "light")
	b.run(t, chromedp.Navigate(f.url+"/slots/"+run.ID()))
	b.until(t, "the page of a slot that waits", `document.getElementById("head")?.textContent.includes("pending")`)
	f.lines <- "the first line"
	b.until(t, "the output while it runs", `document.getElementById("tail")?.textContent.includes("the first line")`)
	close(f.lines)
	b.until(t, "the outcome, and the output from the record", `document.getElementById("head").textContent.includes("succeeded") && !document.getElementById("tail") && document.getElementById("output").textContent.includes("the first line")`)
	for _, v := range b.said {
		t.Error(v)
	}
}

// A browser opens six connections to a host.
func TestOutputsInHiddenTabsLeaveAConnectionForOtherPages(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	run, err := f.client.Trigger(t.Context(), "talkative", client.TriggerOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	defer close(f.lines)
	f.lines <- "the first line"
	natstest.Eventually(t, "the slot to run", func() bool {
		d, err := f.client.Slot(t.Context(), run.ID())
		return err == nil && d.State == job.Running
	})
	for range 7 {
		b := open(t, chromium, f.url, 1280, 900, "light")
		b.run(t, chromedp.Navigate(f.url+"/slots/"+run.ID()))
		b.until(t, "the output", `document.getElementById("tail")?.textContent.includes("the first line")`)
		ask[bool](t, b, `(() => { Object.defineProperty(document, "hidden", {value: true}); return document.dispatchEvent(new Event("visibilitychange")) })()`)
	}
}
