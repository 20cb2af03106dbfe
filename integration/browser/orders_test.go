//go:build long

package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// noScript turns JavaScript off for the pages of a tab.
func (b *tab) noScript(t *testing.T) {
	t.Helper()
	if _, err := chromedp.Call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
		t.Fatal(err)
	}
}

// click clicks on the element of the selector, and waits until the expression then is true.
func (b *tab) click(t *testing.T, selector, then string) {
	t.Helper()
	b.until(t, selector, `document.querySelector('`+selector+`')`)
	ask[bool](t, b, `document.querySelector('`+selector+`').click(), true`)
	b.until(t, "the effect of a click on "+selector, then)
}

func TestOrdersWorkWithoutJavaScript(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	b := open(t, chromium, f.url, 390, 844, "light")
	b.noScript(t)
	b.run(t, chromedp.Navigate(f.url+"/jobs"))
	b.until(t, "the list", `document.readyState === "complete" && document.querySelector("a[data-row]")`)
	if ask[bool](t, b, `document.querySelector("[data-prefs] button") === null`) {
		t.Fatal("scripts run: the button of the preferences is gone")
	}

	// Several jobs at once.
	ask[bool](t, b, `document.getElementById("tick-heartbeat").checked = true`)
	b.click(t, `button[name="order"][value="pause"]`, `document.getElementById("consequence")?.textContent.includes("will not be published until it is resumed")`)
	b.click(t, "form[method=post].card button", `location.pathname.endsWith("/jobs") && document.querySelector("a[data-row]")`)
	if u, err := f.client.Next(t.Context(), "heartbeat"); err != nil || !u.Paused || u.By != "alice@laptop" {
		t.Errorf("the job is not paused: %+v, %v", u.Definition, err)
	}

	// The error is beside the field, which keeps what was typed.
	b.run(t, chromedp.Navigate(f.url+"/jobs/invoice-export/trigger"))
	ask[bool](t, b, `document.getElementById("f-payload").value = '{"month": ', true`)
	b.click(t, "#order-form button:not([name])", `document.getElementById("e-payload")?.textContent.includes("it is not JSON")`)
	if typed := ask[string](t, b, `document.getElementById("f-payload").value`); typed != `{"month": ` {
		t.Errorf("the form has %q", typed)
	}

	// The choice of a zone and a theme keeps what was typed, too.
	ask[bool](t, b, `document.querySelector("[name=choose-zone]").value = "job", document.querySelector("[name=choose-theme]").value = "light", document.getElementById("f-payload").value = '{"week": ', document.getElementById("f-at").value = "2126-11-21 07:00", true`)
	b.click(t, "[data-prefs] button", `document.documentElement.dataset.theme === "light" && document.getElementById("f-payload").value === '{"week": ' && document.getElementById("f-at").value === "2126-11-21 07:00" && document.getElementById("consequence").textContent.includes("It starts at Thu 21 Nov 2126 07:00:00 UTC")`)
	ask[bool](t, b, `document.getElementById("f-payload").value = '{"month": 11}', document.getElementById("f-at").value = "", true`)
	b.click(t, "#order-form button:not([name])", `location.pathname.includes("/slots/invoice-export:@") && document.querySelector("h1")`)
	if list, err := f.client.ListSlots(t.Context(), client.SlotFilter{Job: "invoice-export", Newest: true, Limit: 1}); err != nil || len(list.Slots) != 1 || !list.Slots[0].Slot.IsZero() {
		t.Errorf("the run is not there: %+v, %v", list.Slots, err)
	}

	// The theme.
	ask[bool](t, b, `document.querySelector("[name=choose-theme]").value = "dark", true`)
	b.click(t, "[data-prefs] button", `document.documentElement.dataset.theme === "dark" && location.pathname.includes("/slots/")`)
	for _, v := range b.said {
		if !strings.Contains(v, "422") { // the status for the wrong payload
			t.Error(v)
		}
	}
}

func TestSlotPageShowsOutputWhileTheSlotRuns(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	run, err := f.client.Trigger(t.Context(), "talkative", client.TriggerOptions{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	f.lines <- "the first line"
	natstest.Eventually(t, "the slot to run", func() bool {
		d, err := f.client.Slot(t.Context(), run.ID())
		return err == nil && d.State == job.Running
	})
	b := open(t, chromium, f.url, 1280, 900, "dark")
	b.run(t, chromedp.Navigate(f.url+"/slots/"+run.ID()))
	b.until(t, "the line that was written before", `document.getElementById("tail")?.textContent.includes("the first line")`)
	for _, line := range []string{"the second line", "<b>the third</b>"} {
		f.lines <- line
		b.until(t, line, `document.getElementById("tail")?.textContent.includes("`+line+`")`)
	}
	b.picture(t, "tail")
	close(f.lines)
	b.until(t, "the outcome", `document.getElementById("head").textContent.includes("succeeded")`)
	for _, v := range b.said {
		t.Error(v)
	}
}
