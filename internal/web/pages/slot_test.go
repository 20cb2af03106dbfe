package pages_test

import (
	"context"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/pages"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/internal/web/secure"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

const hostile = "<script>alert(1)</script>\"'&\u202egnp\x1b[31m"

// archive is a namespace whose slots have ended, and its pages below /ops.
type archive struct {
	url    string
	store  *kv.Store
	client *client.Client
	nats   *natstest.Server
	base   time.Time // of the slots
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	s := natstest.Run(t)
	store := kvtest.Open(t, s.JetStream(), kv.Options{})
	c, err := client.New(t.Context(), s.Conn(), client.WithOperator("alice@laptop"))
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan client.Event)
	site := pages.New(shell.Config{
		Client: c, Patience: natstest.Patience,
		Subscribe: func(context.Context) (<-chan client.Event, func(), error) { return events, func() {}, nil },
		Recent:    func(context.Context) ([]client.Event, time.Time, error) { return nil, time.Now(), nil },
	})
	mux := http.NewServeMux()
	mux.Handle("/ops/", http.StripPrefix("/ops", secure.Wrap(site)))
	server := httptest.NewServer(mux)
	t.Cleanup(func() { site.Close(); server.Close() })
	a := &archive{url: server.URL + "/ops/", store: store, client: c, nats: s, base: time.Now().UTC().Truncate(time.Hour).Add(-2 * time.Hour)}
	d := plans.Definition{Job: job.Job{Name: "report", Schedule: "0 * * * *"}, Since: a.base.Add(-time.Hour), Nonce: "n"}
	if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	a.record(t, job.Record{
		Slot: job.NewSlot("report", a.base), State: job.Failed, Due: a.base, Published: a.base.Add(2 * time.Millisecond), Publisher: "web3-1",
		Attempt: 2, MaxAttempts: 2, Node: "web2-1", Queue: "default", Finished: a.base.Add(23 * time.Second), Error: hostile, Output: "row 1\n" + hostile,
		Attempts: []job.Attempt{
			{Number: 1, Node: "web1-1", Fence: 11, Started: a.base.Add(5 * time.Millisecond), Finished: a.base.Add(22 * time.Second), Error: "worker web1-1 died", Output: "first output"},
			{Number: 2, Node: "web2-1", Fence: 15, Started: a.base.Add(22 * time.Second), Finished: a.base.Add(23 * time.Second), Error: hostile},
		},
	})
	a.record(t, job.Record{Slot: job.Slot{Job: "report", Token: "invoice/<b>x7"}, State: job.Succeeded, Published: a.base, Node: "web1-1", Finished: a.base.Add(time.Second), Output: strings.Repeat("long ", 10_000)})
	if err := store.EmitAndFlush(job.Event{V: 1, Kind: job.EventFenced, Node: "web2-1", Peer: "web1-1", Time: a.base.Add(20 * time.Second)}); err != nil {
		t.Fatal(err)
	}
	for _, e := range []job.Event{
		{Kind: job.EventTakeover, Node: "web2-1", Peer: "web1-1", ID: job.NewSlot("report", a.base).ID(), Job: "report", Time: a.base.Add(22 * time.Second)},
		{Kind: job.EventFailed, Node: "web2-1", ID: job.NewSlot("report", a.base).ID(), Job: "report", Error: hostile, Time: a.base.Add(23 * time.Second)},
		{Kind: job.EventOrdered, Node: "alice@laptop", Job: "report", Order: "pause", Time: a.base.Add(time.Minute)},
	} {
		e.V = 1
		if err := store.StoreEvent(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []exchange.Node{
		{Name: "web2-1", State: exchange.NodeAlive, Lease: time.Hour, Producer: true, Worker: true, Queues: []string{"default"}, Started: a.base, Version: "1.2.3", Tzdata: "2026a", ClockOffset: -1500 * time.Microsecond},
		{Name: "web4-1", State: exchange.NodeAlive, Lease: time.Hour, Worker: true, Queues: []string{"default"}, Priority: 3, Started: a.base, Version: "1.2.4", Tzdata: "2026b"},
		{Name: "web1-1", State: exchange.NodeFenced, Lease: time.Hour, FencedBy: "web2-1", FencedAt: a.base.Add(20 * time.Second), Started: a.base},
	} {
		n.Nonce = "n"
		if _, err := store.Nodes().Write(t.Context(), n, 0); err != nil {
			t.Fatal(err)
		}
	}
	return a
}

func (a *archive) record(t *testing.T, r job.Record) {
	t.Helper()
	r.Nonce = "n"
	if _, err := a.store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
}

var (
	tags   = regexp.MustCompile(`(?s)<(script|style|svg).*?</(script|style|svg)>|<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
)

// get returns the status, the markup and the text of a page.
func (a *archive) get(t *testing.T, path string) (status int, markup, text string) {
	t.Helper()
	w, err := http.Get(a.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	markup = string(body)
	if strings.Contains(markup, "<script>alert") || strings.ContainsAny(markup, "\u202e\x1b") || strings.Contains(markup, "<b>x7") {
		t.Errorf("%s has foreign markup: %s", path, markup)
	}
	return w.StatusCode, markup, blanks.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(markup, " ")), " ")
}

// whole is get, and waits for what the page computes in the background.
func (a *archive) whole(t *testing.T, path string) (status int, markup, text string) {
	t.Helper()
	natstest.Eventually(t, "the whole page", func() bool {
		status, markup, text = a.get(t, path)
		return !strings.Contains(text, "are being counted")
	})
	return status, markup, text
}

func TestSlotPageTellsItsStory(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := job.NewSlot("report", a.base).ID()
	status, markup, text := a.get(t, "slots/"+id)
	for _, want := range []string{
		"It ended failed: <script>alert(1)</script>", `\x1b[31m`, "attempt 1 claimed and started by web1-1, fence 11", "node web1-1 was declared dead by web2-1",
		"web2-1 took it over from web1-1", "+22 s", "Output of attempt 2 row 1", "Output of attempt 1, on web1-1 first output", "Attempts 2 of 2", "Lateness 5 ms", "Retry",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	for _, want := range []string{`class="t-bar h-failed"`, `class="t-move"`, `<g class="t-mark m-fenced">`, `2 · fence 15`, `href="./../slots/` + id + `/retry"`, `role="img"`} {
		if !strings.Contains(markup, want) {
			t.Errorf("status %d: the page does not have %s: %s", status, want, markup)
		}
	}
	if strings.Contains(text, "Cancel") {
		t.Error("a slot that is over can be cancelled")
	}
	if status, markup, _ = a.get(t, "slots?job="+url.QueryEscape(hostile)); status != http.StatusBadRequest || !strings.Contains(markup, `<title>&lt;script&gt;`) {
		t.Errorf("slots of a job with a hostile name: status %d: %s", status, markup)
	}
	if status, _, text = a.get(t, "slots/"+url.PathEscape("report:@invoice/<b>x7")); status != 200 || !strings.Contains(text, "It ended succeeded") || strings.Contains(text, "Retry") {
		t.Errorf("%d: %s", status, text)
	}
}

func TestPageOfASlotThatDoesNotExistSaysWhyNot(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	status, markup, text := a.get(t, "slots/"+job.NewSlot("report", a.base.Add(30*time.Minute)).ID())
	before, after := job.NewSlot("report", a.base).ID(), job.NewSlot("report", a.base.Add(time.Hour)).ID()
	if status != 200 || !strings.Contains(text, "no such slot") || !strings.Contains(markup, `href="./../slots/`+before+`"`) || !strings.Contains(markup, `href="./../slots/`+after+`"`) {
		t.Errorf("%d: %s", status, text)
	}
	for path, want := range map[string]string{
		"slots/reprot:2026-11-21T07:00:00Z":           "Did you mean report?",
		"slots/report:@never":                         "was not triggered with this token",
		"slots/nonsense":                              "nonsense",
		"slots/" + url.PathEscape("a<script>:@k"):     "a<script>:@k",
		"slots/report:2026-11-21T07:00:00Z?color=red": `no parameter "color"`,
	} {
		if status, _, text := a.get(t, path); status >= 500 || !strings.Contains(text, want) {
			t.Errorf("%s: %d: %s, want %q", path, status, text, want)
		}
	}
}

func TestSlotsAreFilteredByTheAddress(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := job.NewSlot("report", a.base).ID()
	for path, want := range map[string]bool{
		"slots": true, "slots?state=failed": true, "slots?state=succeeded": false, "slots?job=report": true, "slots?job=other": false,
		"slots?range=hour": false, "slots?range=week": true, "slots?order=oldest": true,
		"slots?since=" + url.QueryEscape(a.base.Add(time.Minute).Format(time.RFC3339)): false,
	} {
		status, _, text := a.get(t, path)
		if status != 200 || strings.Contains(text, id) != want {
			t.Errorf("%s: %d, with the slot: %v, want %v: %s", path, status, !want, want, text)
		}
	}
	for path, want := range map[string]string{
		"slots?state=done": `"done" is not allowed`, "slots?range=year": "want one of", "slots?job=a.b": "a.b", "slots?order=x": "want one of", "slots?since=soon": `"soon" is not a time`,
		"slots?order=oldest&after=x": "cursor", "slots?stat=failed": `no parameter "stat"`, "slots?job=%ff": "UTF-8",
	} {
		if status, _, text := a.get(t, path); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d: %s, want %q", path, status, text, want)
		}
	}
}

func TestListOfSlotsHasPages(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for i := range 120 {
		a.record(t, job.Record{Slot: job.NewSlot("many", a.base.Add(time.Duration(i)*time.Second)), State: job.Succeeded, Published: a.base, Finished: a.base, Node: "n"})
	}
	next, rows := "slots?order=oldest&job=many", 0
	for range 3 {
		status, markup, _ := a.get(t, next)
		if status != 200 {
			t.Fatal(status)
		}
		rows += strings.Count(markup, "data-row")
		m := regexp.MustCompile(`rel="next" href="([^"]+)"`).FindStringSubmatch(markup)
		if m == nil {
			break
		}
		next = "slots" + html.UnescapeString(m[1])
	}
	if rows != 120 {
		t.Errorf("%d rows on all pages", rows)
	}
}

func TestFleetShowsClocksTrustAndStandby(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, _, text := a.get(t, "nodes")
	for _, want := range []string{
		"2 processes", "web2-1 alive publishes, works default 0 -1.5 ms", "works (stands by, 3)", "stand by, 3: web4-1", "different zone data: 2026a, 2026b",
		"different versions: 1.2.3, 1.2.4", "web1-1 fenced", "so web2-1 declared it dead",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	if status, _, text := a.get(t, "nodes?former=yes"); status != 400 || !strings.Contains(text, "not allowed") {
		t.Errorf("%d: %s", status, text)
	}
}

func TestActivityShowsWhatHappenedAndWhoOrderedIt(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := job.NewSlot("report", a.base).ID()
	_, _, text := a.get(t, "activity")
	order := []string{"pause report alice@laptop", "failed " + id + " web2-1", "takeover " + id, "fenced web1-1 web2-1 declared dead"}
	for i, want := range order {
		at := strings.Index(text, want)
		if at < 0 || i > 0 && at < strings.Index(text, order[i-1]) {
			t.Errorf("%q is at %d: %s", want, at, text)
		}
	}
	for path, want := range map[string]string{"activity?kind=orders": "pause", "activity?kind=troubles": "takeover", "activity?kind=fenced": "declared dead", "activity?job=report": "pause"} {
		if status, _, text := a.get(t, path); status != 200 || !strings.Contains(text, want) || path == "activity?kind=orders" && strings.Contains(text, id) {
			t.Errorf("%s: %d: %s", path, status, text)
		}
	}
	for path, want := range map[string]string{"activity?kind=dawn": "not allowed", "activity?before=x": "not the number", "activity?job=a.b": "a.b", "activity?before=-1": "not the number"} {
		if status, _, text := a.get(t, path); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d: %s", path, status, text)
		}
	}
	if status, _, text := a.get(t, "activity?before=1"); status != 200 || !strings.Contains(text, "No such event") {
		t.Errorf("before all: %d: %s", status, text)
	}
}

func TestScheduleIsSpelledOut(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	_, _, text := a.get(t, "schedule?spec=30+2+*+*+*&zone=Europe/Berlin&from=2026-11-22&gap=skip")
	for _, want := range []string{"every day at 02:30", "Forward 1 h on Sunday 28 March 2027", "after 02:00 CET comes 03:00 CEST", "skip as chosen: does not run", "both runs at 02:30 CEST, 02:30 CET", "November 2026"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	for path, want := range map[string]string{
		"schedule?spec=61+*+*+*+*": "61", "schedule?spec=" + url.QueryEscape("<script>alert(1)</script>é"): "printable ASCII", "schedule?spec=0+7+*+*+*&zone=Mars": "no zone", "schedule?spec=0+7+*+*+*&gap=x": "want one of",
		"schedule?spec=H+7+*+*+*": "H needs a job's name", "schedule?spec=0+7+*+*+*&name=a.b": "a.b", "schedule?spec=0+7+*+*+*&from=soon": "is not a time", "schedule?spec=" + strings.Repeat("0", 2000): "at most 1024",
	} {
		if status, _, text := a.get(t, path); status != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: %d: %s, want %q", path, status, text, want)
		}
	}
	if _, _, text := a.get(t, "schedule?spec=*+*+*+*+*+*&zone=Europe/Berlin"); !strings.Contains(text, "every second") || !strings.Contains(text, "1440+×") {
		t.Error(text)
	}
}

// The output can be followed without a script, as a text that grows.
func TestOutputOfASlotIsFollowedAsText(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	w, err := http.Get(a.url + "slots/" + job.NewSlot("report", a.base).ID() + "/tail")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.Contains(string(body), "row 1\n") || !strings.HasSuffix(string(body), "(failed)\n") || strings.ContainsAny(string(body), "\u202e\x1b") {
		t.Errorf("%v %v: %q", err, w.Header, body)
	}
	for path, want := range map[string]int{"slots/report:@never/tail": 404, "slots/nonsense/tail": 400} {
		if status, _, text := a.get(t, path); status != want {
			t.Errorf("%s: %d: %s", path, status, text)
		}
	}
}

// post sends a form as a page of this site does, follows the redirect, and returns the page.
func (a *archive) post(t *testing.T, path string, form url.Values) (status int, at, text string) {
	t.Helper()
	w, err := http.PostForm(a.url+path, form)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, strings.TrimPrefix(w.Request.URL.String(), a.url), blanks.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(string(body), " ")), " ")
}

func TestOrdersOnASlotSayFirstWhatTheyDo(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := job.NewSlot("report", a.base).ID()
	_, _, text := a.get(t, "slots/"+id+"/retry")
	for _, want := range []string{"ended failed after 2 attempts", "new start at once, with up to 3 attempts more", "No live node has a handler", "Retry it now"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	if _, _, text = a.get(t, "slots/"+id+"/cancel"); !strings.Contains(text, "has its outcome: failed") || strings.Contains(text, "End it for good") {
		t.Error(text)
	}
	status, at, text := a.post(t, "slots/"+id+"/retry", nil)
	if status != 200 || at != "slots/"+id || !strings.Contains(text, "given a new start by alice@laptop") {
		t.Fatalf("%d at %s: %s", status, at, text)
	}
	// Another operator is slower.
	if status, _, text = a.post(t, "slots/"+id+"/retry", nil); status == 200 && !strings.Contains(text, "waits for attempt") && !strings.Contains(text, "retrying") {
		t.Errorf("%d: %s", status, text)
	}
	if _, _, text = a.get(t, "slots/"+id+"/cancel"); !strings.Contains(text, "the attempt does not start") || !strings.Contains(text, "End it for good") {
		t.Error(text)
	}
	if status, at, text = a.post(t, "slots/"+id+"/cancel", nil); status != 200 || at != "slots/"+id || !strings.Contains(text, "cancelled by alice@laptop") {
		t.Errorf("%d at %s: %s", status, at, text)
	}
	if status, _, text = a.post(t, "slots/"+id+"/cancel", nil); status == 200 && !strings.Contains(text, "cancelled") {
		t.Errorf("%d: %s", status, text)
	}
	done := "slots/" + url.PathEscape("report:@invoice/<b>x7")
	if _, _, text = a.get(t, done+"/retry"); !strings.Contains(text, "a success stays") || strings.Contains(text, "Retry it now") {
		t.Error(text)
	}
	if status, _, text = a.post(t, done+"/retry", nil); status != http.StatusConflict || !strings.Contains(text, "succeeded") {
		t.Errorf("%d: %s", status, text)
	}
	for _, path := range []string{"slots/report:@never/retry", "slots/report:@never/cancel"} {
		if status, _, _ := a.post(t, path, nil); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestHealthVerifiesARangeAndRepairsIt(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	if _, err := a.store.Watermark().Write(t.Context(), exchange.Watermark{Time: time.Now(), Revision: 100, Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	// A slot that ended twice cannot be repaired, and the hole can.
	at := a.base.Add(time.Minute)
	a.record(t, job.Record{
		Slot: job.Slot{Job: "report", Token: "twice"}, State: job.Succeeded, Published: at, Node: "web1-1", Attempt: 2, Finished: at.Add(4 * time.Second),
		Attempts: []job.Attempt{{Number: 1, Node: "web1-1", Fence: 1, Started: at, Finished: at.Add(time.Second)}, {Number: 2, Node: "web1-1", Fence: 2, Started: at.Add(2 * time.Second), Finished: at.Add(4 * time.Second)}},
	})
	hole := job.NewSlot("report", a.base.Add(time.Hour)).ID()
	query := "verify=1&job=report&from=" + url.QueryEscape(a.base.Format(time.RFC3339)) + "&to=" + url.QueryEscape(a.base.Add(90*time.Minute).Format(time.RFC3339))
	var text string
	natstest.Eventually(t, "the check to end", func() bool {
		_, _, text = a.get(t, "health?"+query)
		return !strings.Contains(text, "Verifying:")
	})
	for _, want := range []string{hole + " missing", "Repair 1 of them", "2 problems", "2 slots that should exist"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not say %q: %s", want, text)
		}
	}
	if _, _, text = a.get(t, "health/repair?"+query); !strings.Contains(text, "offered again to the workers: 1") || !strings.Contains(text, "Offer them again") {
		t.Error(text)
	}
	form, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	form.Del("verify")
	status, page, text := a.post(t, "health/repair", form)
	if status != 200 || !strings.HasPrefix(page, "health?") {
		t.Errorf("%d at %s: %s", status, page, text)
	}
	natstest.Eventually(t, "the repair to end", func() bool {
		_, _, text = a.get(t, page)
		return strings.Contains(text, "Repaired")
	})
	if !strings.Contains(text, "Offered again: 1") {
		t.Error(text)
	}
	if d, err := a.client.Slot(t.Context(), hole); err != nil || d.State != job.Pending {
		t.Errorf("%+v, %v", d, err)
	}
	for path, want := range map[string]string{
		"health?verify=1&from=soon": "is not a time", "health?verify=1&from=2026-01-02&to=2026-01-01": "not after the beginning", "health?verify=1&job=a.b": "a.b",
		"health?verify=yes": "not allowed", "health?verify=1&from=8000-01-01": "in the future", "health/repair?from=soon": "is not a time",
	} {
		if status, _, text := a.get(t, path); status != 400 || !strings.Contains(text, want) || strings.Contains(text, "Verifying:") {
			t.Errorf("%s: %d: %s, want %q", path, status, text, want)
		}
	}
	if status, _, text := a.post(t, "health/repair", url.Values{"from": {"soon"}}); status != http.StatusUnprocessableEntity || !strings.Contains(text, "is not a time") {
		t.Errorf("%d: %s", status, text)
	}
}

func TestHealthShowsWhatMendsEachFinding(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var text string
	natstest.Eventually(t, "the doctor's findings", func() bool {
		_, _, text = a.get(t, "health")
		return strings.Contains(text, "How to fix it:")
	})
	if status, at, _ := a.post(t, "health", nil); status != 200 || at != "health" {
		t.Errorf("check again: %d at %s", status, at)
	}
}
