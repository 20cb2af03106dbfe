//go:build long

package browser

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cronce-io/cronce/client"
)

// newestSlot is a JavaScript expression for the link to the newest slot of a job in the list.
const newestSlot = `document.querySelector('a[data-row][href$="/heartbeat"]').closest("tr").querySelector("td:nth-child(4) a")`

func TestListUpdatesItselfAndKeepsTheFocus(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	b := open(t, chromium, f.url, 1280, 900, "light")
	b.run(t, chromedp.Navigate(f.url+"/jobs"))
	b.until(t, "the list", ready)
	before := ask[string](t, b, "window.marked = true, "+newestSlot+".getAttribute('href')")
	b.run(t, chromedp.KeyEvent("j"), chromedp.KeyEvent("j"))
	b.until(t, "the focus on the second row", `document.activeElement.matches('a[data-row][href$="/heartbeat"]')`)
	if _, err := f.client.Trigger(t.Context(), "heartbeat", client.TriggerOptions{Key: "now"}); err != nil {
		t.Fatal(err)
	}
	b.until(t, "the run", newestSlot+".getAttribute('href') !== '"+before+"'")
	if !ask[bool](t, b, "window.marked === true") {
		t.Error("the whole page was loaded again")
	}
	b.until(t, "the focus still on the second row", `document.activeElement.matches('a[data-row][href$="/heartbeat"]')`)
	b.run(t, chromedp.KeyEvent("/"))
	b.until(t, "the focus on the search", `document.activeElement.type === "search"`)
}

func TestHoleIsRepairedInThreeClicks(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	b := open(t, chromium, f.url, 390, 844, "dark")
	b.run(t, chromedp.Navigate(f.url+"/"))
	b.until(t, "the first page", ready)
	b.click(t, `#axis a[href$="jobs/invoice-export"]`, `location.pathname.endsWith("/jobs/invoice-export")`)
	b.click(t, `#account .holes .button`, `location.pathname.endsWith("/repair")`)
	b.click(t, `form[method=post].card button`, `location.pathname.endsWith("/jobs/invoice-export")`)
	b.until(t, "no hole", ready+` && !document.querySelector("#account .holes")`)
}

func TestOpenPageSaysThatTheBrokerIsAwayAndComesBack(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	b := open(t, chromium, f.url, 1280, 900, "light")
	b.run(t, chromedp.Navigate(f.url+"/jobs"))
	b.until(t, "the list", ready)
	f.nats.Stop()
	began := time.Now()
	b.until(t, "the banner", `document.querySelector("#notice .banner.warn") && document.querySelector("a[data-row]")`)
	t.Logf("the banner came after %v", time.Since(began).Round(10*time.Millisecond))
	f.nats.Start()
	b.until(t, "the page without the banner", `!document.querySelector("#notice .banner.warn") && document.querySelector("a[data-row]")`)
}

func TestChoiceOfAZoneKeepsWhatWasTyped(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	b := open(t, chromium, f.url, 1280, 900, "light")
	b.run(t, chromedp.Navigate(f.url+"/jobs/morning-report/trigger"))
	b.until(t, "the form", ready)
	key := ask[string](t, b, `document.querySelector("[name=key]").value`)
	ask[bool](t, b, `(() => { document.getElementById("f-payload").value = "{<b>"; document.getElementById("f-at").value = "2126-11-21 07:00"; const zone = document.querySelector("[name=choose-zone]"); zone.value = "job"; zone.dispatchEvent(new Event("change", {bubbles: true})); return true })()`)
	b.until(t, "what was typed, in the other zone", `document.getElementById("f-payload")?.value === "{<b>" && document.getElementById("f-at").value === "2126-11-21 07:00" && document.querySelector("[name=key]").value === "`+key+`" && document.getElementById("consequence").textContent.includes("07:00:00 CET")`)

	// Enter in the field says what the order will do; it does not choose a zone, and gives no order.
	ask[bool](t, b, `(() => { document.getElementById("f-payload").value = ""; const at = document.getElementById("f-at"); at.value = "2126-11-22 07:00"; at.focus(); return true })()`)
	b.run(t, chromedp.KeyEvent("\r"))
	b.until(t, "what the order will do", `location.pathname.endsWith("/trigger") && document.getElementById("consequence")?.textContent.includes("Fri 22 Nov 2126 07:00:00 CET")`)
	b.run(t, chromedp.Navigate(f.url+"/jobs"))
	b.until(t, "the zone in which times are shown", ready+` && document.querySelector("[name=choose-zone]").value === "job"`)
	for _, v := range b.said {
		t.Error(v)
	}
}

func TestThemeAndZoneAreKept(t *testing.T) {
	chromium := browser(t)
	f := newFleet(t, "/x")
	b := open(t, chromium, f.url, 1280, 900, "light")
	b.run(t, chromedp.Navigate(f.url+"/jobs?q=report"))
	b.until(t, "the list", ready)
	ask[bool](t, b, `(() => { const zone = document.querySelector("[name=choose-zone]"); document.querySelector("[name=choose-theme]").value = "dark"; zone.value = "job"; zone.dispatchEvent(new Event("change", {bubbles: true})); return true })()`)
	b.until(t, "the choice", `document.documentElement.dataset.theme === "dark" && location.search === "?q=report" && document.body.textContent.includes("CET")`)
}
