package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/apitest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/api"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m, goleak.IgnoreCurrent())
}

func member(t *testing.T, body string, path ...string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("no %v in %s", path, body)
		}
		v = m[name]
	}
	return v
}

// Every operation is called, and its requests and answers are as the document describes them.
func TestEveryOperationIsWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	server, c := apitest.Serve(t)
	k := newContract(t, server)
	ended := func(id string, state job.State) func() bool {
		return func() bool { s, err := c.Slot(t.Context(), id); return err == nil && s.State == state }
	}
	w, _ := k.do(t, request{op: "getDocument", path: "/openapi.json", want: 200})
	if w.Header.Get("Content-Type") != "application/json" {
		t.Errorf("document: %v", w.Header)
	}

	// A job from its beginning to its end.
	w, body := k.do(t, request{op: "putJob", path: "/jobs/report", header: []string{"If-None-Match", "*", "User", "alice@example.com"}, body: `{"schedule":"0 7 * * *"}`, want: 201})
	first := w.Header.Get("ETag")
	if member(t, body, "change") != "created" {
		t.Error(body)
	}
	w, body = k.do(t, request{op: "getJob", path: "/jobs/report", want: 200})
	if w.Header.Get("ETag") != first || member(t, body, "node") != "alice@example.com" || member(t, body, "owner") != "operator" {
		t.Errorf("ETag %q, %s", w.Header.Get("ETag"), body)
	}
	w, body = k.do(t, request{op: "putJob", path: "/jobs/report?dry_run=true", body: `{"name":"report","schedule":"30 7 * * *"}`, want: 200})
	if member(t, body, "dry_run") != true || member(t, body, "change") != "updated" || member(t, body, "appear") == nil || w.Header.Get("ETag") != first {
		t.Error(body)
	}
	w, _ = k.do(t, request{op: "putJob", path: "/jobs/report", header: []string{"If-Match", first, "User", "bob"}, body: `{"schedule":"30 7 * * *","action":{"exec":["rm"]}}`, want: 200})
	second := w.Header.Get("ETag")
	// The same request again: its answer was lost.
	if w, body = k.do(t, request{op: "putJob", path: "/jobs/report", header: []string{"If-Match", first}, body: `{"schedule":"30 7 * * *"}`, want: 200}); w.Header.Get("ETag") != second || member(t, body, "change") != "unchanged" {
		t.Errorf("ETag %q, want %q: %s", w.Header.Get("ETag"), second, body)
	}
	_, body = k.do(t, request{op: "putJob", path: "/jobs/report", header: []string{"If-Match", first}, body: `{"schedule":"0 8 * * *"}`, want: 412})
	if member(t, body, "by") != "bob" || etag(member(t, body, "revision")) != second {
		t.Error(body)
	}
	k.do(t, request{op: "putJob", path: "/jobs/report", header: []string{"If-None-Match", "*"}, body: `{"schedule":"0 8 * * *"}`, want: 412})
	k.do(t, request{op: "putJob", path: "/jobs/report", header: []string{"If-Match", `"99999"`}, body: `{"schedule":"0 8 * * *"}`, want: 412})
	k.do(t, request{op: "putJob", path: "/jobs/nosuch", header: []string{"If-Match", `"1"`}, body: `{"schedule":"0 8 * * *"}`, want: 412})
	k.do(t, request{op: "putJob", path: "/jobs/report", body: `{"schedule":"0 8 * * *"}`, want: 428})
	_, body = k.do(t, request{op: "listComingSlots", path: "/jobs/report/next?after=2026-11-21T00:00:00Z&until=2026-12-01T00:00:00Z&limit=2", want: 200})
	if next := member(t, body, "next"); next != "2026-11-22T07:30:00Z" {
		t.Error(body)
	}
	_, body = k.do(t, request{op: "pauseJob", path: "/jobs/report:pause", header: []string{"User", "carol"}, want: 200})
	if member(t, body, "changed") != true {
		t.Error(body)
	}
	k.do(t, request{op: "resumeJob", path: "/jobs/report:resume?dry_run=true", want: 200})
	k.do(t, request{op: "resumeJob", path: "/jobs/report:resume", want: 200})
	k.do(t, request{op: "releaseJob", path: "/jobs/report:release", want: 200})
	from := time.Now().Add(-12 * time.Hour).UTC().Truncate(time.Second)
	_, body = k.do(t, request{op: "backfillJob", path: "/jobs/quick:backfill", body: fmt.Sprintf(`{"from":%q,"to":%q,"clip":true}`, from.Format(time.RFC3339), from.Add(time.Hour).Format(time.RFC3339)), want: 200})
	if member(t, body, "complete") != true {
		t.Error(body)
	}
	k.do(t, request{op: "deleteJob", path: "/jobs/report", header: []string{"If-Match", first}, want: 412})
	k.do(t, request{op: "deleteJob", path: "/jobs/report", header: []string{"If-Match", ""}, want: 400})
	_, body = k.do(t, request{op: "deleteJob", path: "/jobs/report", header: []string{"If-Match", "W/" + second}, want: 412})
	if !strings.Contains(body, "weak") {
		t.Errorf("a weak ETag: %s", body)
	}
	k.do(t, request{op: "deleteJob", path: "/jobs/report", want: 200})
	k.do(t, request{op: "getJob", path: "/jobs/report", want: 404})

	// A run: once under its key.
	order := request{op: "triggerJob", path: "/jobs/quick:trigger", header: []string{"Idempotency-Key", "invoice/7"}, body: `{"payload":{"invoice":7}}`, want: 201}
	_, body = k.do(t, order)
	if member(t, body, "id") != "quick:@invoice/7" {
		t.Error(body)
	}
	order.body, order.want = `{"payload": { "invoice": 7 } }`, 200
	k.do(t, order)
	order.body, order.want = `{"payload":{"invoice":8}}`, 422
	k.do(t, order)
	natstest.Eventually(t, "what the test waits for", ended("quick:@invoice/7", job.Succeeded))
	k.do(t, order)
	order.body, order.want = ``, 200
	k.do(t, order)
	k.do(t, request{op: "triggerJob", path: "/jobs/quick:trigger", want: 201})
	k.do(t, request{op: "triggerJob", path: "/jobs/quick:trigger", header: []string{"Idempotency-Key", ""}, want: 400})
	order = request{op: "triggerJob", path: "/jobs/quick:trigger", header: []string{"Idempotency-Key", "none"}, want: 201}
	k.do(t, order)
	order.body, order.want = `{"payload":{"invoice":8}}`, 422
	k.do(t, order)
	id := "/slots/quick:@invoice%2F7"
	_, body = k.do(t, request{op: "getSlot", path: id, want: 200})
	if member(t, body, "state") != "succeeded" {
		t.Error(body)
	}
	k.do(t, request{op: "explainSlot", path: id + "/explain", want: 200})
	_, body = k.do(t, request{op: "waitForSlot", path: id + "/wait?timeout=30s", want: 200})
	if member(t, body, "state") != "succeeded" {
		t.Error(body)
	}
	k.do(t, request{op: "retrySlot", path: id + ":retry", want: 409})

	// A failure, and its new start.
	k.do(t, request{op: "triggerJob", path: "/jobs/broken:trigger", header: []string{"Idempotency-Key", "k"}, want: 201})
	natstest.Eventually(t, "what the test waits for", ended("broken:@k", job.Failed))
	k.do(t, request{op: "retrySlot", path: "/slots/broken:@k:retry", want: 200})

	// A slot that runs, and one that waits, are cancelled.
	k.do(t, request{op: "triggerJob", path: "/jobs/slow:trigger", header: []string{"Idempotency-Key", "k"}, want: 201})
	natstest.Eventually(t, "what the test waits for", ended("slow:@k", job.Running))
	_, body = k.do(t, request{op: "cancelSlot", path: "/slots/slow:@k:cancel", header: []string{"User", "dave"}, want: 200})
	if !strings.Contains(body, "cancelled by dave") {
		t.Error(body)
	}

	// Some orders take longer than a request may.
	hasty := api.New(api.Config{Client: c, Patience: time.Second})
	defer hasty.Close()
	impatient := httptest.NewServer(hasty)
	defer impatient.Close()
	k.do(t, request{op: "triggerJob", path: "/jobs/deaf:trigger", header: []string{"Idempotency-Key", "k"}, want: 201})
	natstest.Eventually(t, "what the test waits for", ended("deaf:@k", job.Running))
	_, body = k.do(t, request{op: "waitForSlot", path: "/slots/deaf:@k/wait?timeout=1ms", want: 202})
	if member(t, body, "state") != "running" {
		t.Error(body)
	}
	_, body = k.do(t, request{op: "waitForSlot", path: "/slots/secondly:2099-01-01T00:00:00Z/wait?timeout=1ms", want: 202})
	if member(t, body, "job") != "secondly" || member(t, body, "slot") != "2099-01-01T00:00:00Z" {
		t.Error(body)
	}
	k.do(t, request{op: "waitForSlot", path: "/slots/deaf:@nosuch/wait?timeout=30s", want: 404})
	for _, id := range []string{"deaf:@nosuch", "nosuch:@x", "nosuch:2099-01-01T00:00:00Z", "quick:2099-02-01T00:00:00Z"} {
		k.do(t, request{op: "waitForSlot", path: "/slots/" + id + "/wait?timeout=0s", want: 404})
	}
	k.do(t, request{op: "waitForSlot", path: "/slots/quick:2099-01-01T00:00:00Z/wait?timeout=0s", want: 202})
	k.do(t, request{op: "waitForSlot", path: "/slots/deaf:@k/wait?timeout=1h", want: 400})
	k.do(t, request{op: "waitForSlot", path: "/slots/deaf:@k/wait?timeout=soon", want: 400})
	k.server = impatient
	k.do(t, request{op: "cancelSlot", path: "/slots/deaf:@k:cancel", want: 202})
	k.do(t, request{op: "pauseJob", path: "/jobs/secondly:pause", want: 200})
	natstest.Eventually(t, "what the test waits for", func() bool {
		would, err := c.Resume(t.Context(), "secondly", client.ResumeOptions{DryRun: true})
		return err == nil && would.Missed > 3
	})
	_, body = k.do(t, request{op: "backfillJob", path: "/jobs/secondly:backfill", body: fmt.Sprintf(`{"from":%q,"rate":1}`, from.Format(time.RFC3339)), want: 202})
	if member(t, body, "complete") != false {
		t.Error(body)
	}
	k.server = server

	// Listings.
	_, body = k.do(t, request{op: "getDoctor", path: "/doctor", want: 200})
	if member(t, body, "version") == "" {
		t.Error(body)
	}
	_, body = k.do(t, request{op: "verifySlots", path: "/verify?job=secondly,quick&limit=1&from=" + from.Format(time.RFC3339), want: 200})
	if member(t, body, "jobs") != 2.0 || member(t, body, "rows") == nil {
		t.Error(body)
	}
	k.do(t, request{op: "verifySlots", path: "/verify?job=nosuch", want: 404})
	_, body = k.do(t, request{op: "repairSlots", path: "/verify:repair", body: `{"jobs":["quick"]}`, want: 200})
	if member(t, body, "offered") != 0.0 {
		t.Error(body)
	}
	k.do(t, request{op: "repairSlots", path: "/verify:repair", want: 200})
	k.do(t, request{op: "listNodes", path: "/nodes?former=true", want: 200})
	for query, want := range map[string]bool{
		"ended_since=2020-01-01T00:00:00Z": true, "ended_since=2120-01-01T00:00:00Z": false,
		"newest=true&limit=2": true, "newest=true&limit=2&job=deaf&state=missed": false,
	} {
		_, body := k.do(t, request{op: "listSlots", path: "/slots?" + query, want: 200})
		if rows, _ := member(t, body, "rows").([]any); len(rows) > 0 != want || member(t, body, "next") != nil {
			t.Errorf("%s: %s", query, body)
		}
	}
	w, _ = k.do(t, request{op: "listSlots", path: "/slots?limit=1&ended_since=2020-01-01T00:00:00Z", want: 200})
	if link := w.Header.Get("Link"); !strings.Contains(link, "ended_since=2020-01-01T00%3A00%3A00Z") {
		t.Errorf("the next page has no ended_since: %s", link)
	}
	for op, path := range map[string]string{"listJobs": "/jobs?limit=1", "listSlots": "/slots?limit=1&state=succeeded,failed&state=cancelled&since=2020-01-01T00:00:00Z"} {
		rows := 0
		for next := path; next != ""; rows++ {
			w, body := k.do(t, request{op: op, path: next, want: 200})
			if n := len(member(t, body, "rows").([]any)); n > 1 {
				t.Errorf("%s has %d rows", next, n)
			}
			link, _, _ := strings.Cut(strings.TrimPrefix(w.Header.Get("Link"), "<"), `>; rel="next"`)
			if (member(t, body, "next") == nil) != (link == "") {
				t.Errorf("Link %q of %s", link, body)
			}
			if next = ""; link != "" {
				next = strings.SplitN(path, "?", 2)[0] + link
			}
		}
		if rows < 3 {
			t.Errorf("%s: %d pages", op, rows)
		}
	}
	k.called["streamEvents200"] = true // see TestEventsGoOnAtAnotherReplica
	k.complete(t)
}

func etag(revision any) string { return fmt.Sprintf("\"%v\"", revision) }

func TestBadRequestsNameWhatIsWrong(t *testing.T) {
	t.Parallel()
	server, c := apitest.Serve(t)
	k := newContract(t, server)
	before, err := c.Jobs(t.Context(), client.JobFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		request
		field, says string
	}{
		{request{op: "listJobs", path: "/jobs?limt=1", want: 400}, "limt", "want after, limit"},
		{request{op: "listJobs", path: "/jobs?limit=0", want: 400}, "limit", "1 to 5000"},
		{request{op: "listJobs", path: "/jobs?limit=many", want: 400}, "limit", `"many"`},
		{request{op: "listJobs", path: "/jobs?limit=1&limit=2", want: 400}, "limit", "2 times"},
		{request{op: "listJobs", path: "/jobs?after=x", want: 400}, "after", "cursor"},
		{request{op: "listJobs", path: "/jobs?limit=%zz", want: 400}, "query", "%zz"},
		{request{op: "listJobs", path: "/jobs", body: "{}", want: 400}, "body", "no body"},
		{request{op: "getJob", path: "/jobs/a.%3E", want: 400}, "job", "a.>"},
		{request{op: "getJob", path: "/jobs/nosuch", want: 404}, "", "not found"},
		{request{op: "getJob", path: "/jobs/" + strings.Repeat("x", 4000), want: 400}, "job", "1 to 64"},
		{request{op: "listSlots", path: "/slots?state=done", want: 400}, "state", `"done": want pending, running`},
		{request{op: "listSlots", path: "/slots?state=failed&state=done", want: 400}, "state", `"done": want pending, running`},
		{request{op: "listSlots", path: "/slots?z=1&y=1&x=1", want: 400}, "x", `unknown parameter "x"`},
		{request{op: "listSlots", path: "/slots?since=yesterday", want: 400}, "since", "2026-11-21T07:00:00Z"},
		{request{op: "listSlots", path: "/slots?ended_since=1h", want: 400}, "ended_since", "2026-11-21T07:00:00Z"},
		{request{op: "listSlots", path: "/slots?newest=true&after=2026", want: 400}, "after", "no cursor"},
		{request{op: "listSlots", path: "/slots?job=..%2Fetc", want: 400}, "job", "../etc"},
		{request{op: "listSlots", path: "/slots?job=", want: 400}, "job", "1 to 64"},
		{request{op: "getSlot", path: "/slots/report", want: 400}, "id", "report"},
		{request{op: "getSlot", path: "/slots/quick:@%1b%5b31m", want: 400}, "id", `\x1b`},
		{request{op: "getSlot", path: "/slots/quick:@nosuch", want: 404}, "", "no record"},
		{request{op: "cancelSlot", path: "/slots/quick:2026-01-01T00:00:00Z:cancel", want: 404}, "", "no record"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-None-Match", "*"}, want: 400}, "body", "empty"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-None-Match", "*"}, body: "[]", want: 400}, "body", "JSON object"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-None-Match", "*"}, body: `{"name":"b","schedule":"@hourly"}`, want: 400}, "name", `want "a"`},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-None-Match", "*"}, body: `{"schedule":"61 * * * *"}`, want: 400}, "body", "61"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-None-Match", "*"}, body: `{"schedul":"@hourly"}`, want: 400}, "body", "schedule"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-None-Match", "x"}, body: `{"schedule":"@hourly"}`, want: 400}, "If-None-Match", "want *"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-Match", "5"}, body: `{"schedule":"@hourly"}`, want: 400}, "If-Match", "ETag"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"If-Match", `"5"`, "If-None-Match", "*"}, body: `{"schedule":"@hourly"}`, want: 400}, "If-Match", "exclude"},
		{request{op: "putJob", path: "/jobs/a?dry_run=1", body: `{"schedule":"@hourly"}`, want: 400}, "dry_run", "true or false"},
		{request{op: "putJob", path: "/jobs/a", header: []string{"Content-Type", "text/yaml"}, body: "schedule: x", want: 415}, "", "application/json"},
		{request{op: "triggerJob", path: "/jobs/a:trigger", header: []string{"Content-Type", "application/json; charset=latin1"}, body: "{}", want: 415}, "", "UTF-8"},
		{request{op: "triggerJob", path: "/jobs/a:trigger", header: []string{"Content-Encoding", "gzip"}, body: "{}", want: 415}, "", "not compressed"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"payload":`, want: 400}, "body", "unexpected"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"pay":1}`, want: 400}, "pay", "unknown member"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"at":5}`, want: 400}, "at", "is 5: want a time like"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"at":"tomorrow"}`, want: 400}, "at", `is "tomorrow": want a time like`},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"at":"9999-01-01T00:00:00Z"}`, want: 400}, "at", "must be before"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"at":null}`, want: 400}, "at", "is null: want a time like"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"Payload":1}`, want: 400}, "Payload", "want at, payload"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"payload":1,"payload":2}`, want: 400}, "payload", "twice"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: "null", want: 400}, "body", "not an object: null"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: "[]", want: 400}, "body", "not an object: []"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{} {}`, want: 400}, "body", "after top-level value"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", body: `{"payload":"` + strings.Repeat("x", 300<<10) + `"}`, want: 400}, "payload", "payload"},
		{request{op: "triggerJob", path: "/jobs/quick:trigger", header: []string{"Idempotency-Key", strings.Repeat("k", 129)}, want: 400}, "Idempotency-Key", "128"},
		{request{op: "triggerJob", path: "/jobs/nosuch:trigger", want: 404}, "", "nosuch"},
		{request{op: "backfillJob", path: "/jobs/quick:backfill", body: `{"to":"2026-01-01T00:00:00Z"}`, want: 400}, "from", "missing"},
		{request{op: "backfillJob", path: "/jobs/quick:backfill", body: `{"from":"2026-01-01T00:00:00Z","rate":"fast"}`, want: 400}, "rate", "number"},
		{request{op: "backfillJob", path: "/jobs/quick:backfill", body: `{"from":"2027-01-01T00:00:00Z","to":"2026-01-01T00:00:00Z"}`, want: 400}, "to", "2026"},
		{request{op: "backfillJob", path: "/jobs/quick:backfill", body: `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","rate":10001}`, want: 400}, "rate", "10001"},
		{request{op: "backfillJob", path: "/jobs/quick:backfill", body: `{"from":"2026-01-01T00:00:00Z","to":"2026-01-02T00:00:00Z","rate":0}`, want: 400}, "rate", "rate 0/s"},
		{request{op: "backfillJob", path: "/jobs/quick:backfill", body: `{"from":"2199-01-01T00:00:00Z"}`, want: 400}, "from", "in the future"},
		{request{op: "backfillJob", path: "/jobs/quick:backfill", body: `{"from":"2026-01-01T00:00:00Z","to":"2199-01-01T00:00:00Z"}`, want: 400}, "to", "in the future"},
		{request{op: "pauseJob", path: "/jobs/nosuch:pause", want: 404}, "", "not found"},
		{request{op: "verifySlots", path: "/verify?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", want: 400}, "to", "2026-01-02"},
		{request{op: "verifySlots", path: "/verify?from=2199-01-01T00:00:00Z", want: 400}, "from", "in the future"},
		{request{op: "verifySlots", path: "/verify?job=a.b", want: 400}, "job", "a.b"},
		{request{op: "verifySlots", path: "/verify?repair=true", want: 400}, "repair", "want from, job, limit, to"},
		{request{op: "repairSlots", path: "/verify:repair", body: `{"job":"quick"}`, want: 400}, "job", "unknown member"},
		{request{op: "repairSlots", path: "/verify:repair", body: `{"jobs":[]}`, want: 400}, "jobs", "leave it out for all"},
		{request{op: "repairSlots", path: "/verify:repair", body: `{"jobs":["a.b"]}`, want: 400}, "jobs", "a.b"},
		{request{op: "repairSlots", path: "/verify:repair", body: `{"jobs":"quick"}`, want: 400}, "jobs", "want an array"},
		{request{op: "repairSlots", path: "/verify:repair?from=2026-01-02T00:00:00Z", want: 400}, "from", "has none"},
		{request{op: "pauseJob", path: "/jobs/quick:pause", header: []string{"User", strings.Repeat("u", 200)}, want: 400}, "", "operator"},
	} {
		_, body := k.do(t, tc.request)
		var d struct{ Type, Detail, Field string }
		if err := json.Unmarshal([]byte(body), &d); err != nil {
			t.Fatal(err)
		}
		if d.Field != tc.field || !strings.Contains(d.Detail, tc.says) || strings.ContainsAny(d.Detail, "\x1b\n\r") || len(d.Detail) > 4100 {
			t.Errorf("%s %.80s %.60s: field %q, %q; want field %q, and %q", tc.op, tc.path, tc.body, d.Field, d.Detail, tc.field, tc.says)
		}
	}
	for path, want := range map[string]int{"GET /api/v1/nosuch": 404, "GET /api/v2/jobs": 404, "POST /api/v1/jobs": 405, "PATCH /api/v1/jobs/a": 405, "POST /api/v1/jobs/a:explode": 404, "POST /api/v1/jobs/a": 405, "POST /api/v1/slots/a:2026-01-01T00:00:00Z": 405, "POST /api/v1/slots/a:explode": 404,
		"GET /api/v1/jobs/a:pause": 405, "PATCH /api/v1/jobs/a:pause": 405, "GET /api/v1/jobs/a:explode": 400, "GET /api/v1/slots/a:2026-01-01T00:00:00Z:retry": 405, "GET /api/v1/slots/a:@x:retry": 404} {
		method, path, _ := strings.Cut(path, " ")
		r, _ := http.NewRequest(method, server.URL+path, nil)
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if w.StatusCode != want || w.Header.Get("Content-Type") != "application/problem+json" || (want == 405) != (w.Header.Get("Allow") != "") {
			t.Errorf("%s %s: %d %v, want %d", method, path, w.StatusCode, w.Header, want)
		}
		named := strings.HasSuffix(path, ":pause") || strings.HasSuffix(path, ":retry")
		if allow := w.Header.Get("Allow"); want == 405 && named != (allow == "POST") || slices.Contains(strings.Split(allow, ", "), method) {
			t.Errorf("%s %s: allows %s", method, path, allow)
		}
		if allow := w.Header.Get("Allow"); strings.Contains(allow, "GET") != strings.Contains(allow, "HEAD") {
			t.Errorf("%s %s: allows %s; HEAD is served with GET", method, path, allow)
		}
	}
	after, err := c.Jobs(t.Context(), client.JobFilter{})
	if err != nil || len(after.Jobs) != len(before.Jobs) {
		t.Errorf("bad requests changed the jobs: %+v, %v", after, err)
	}
}
