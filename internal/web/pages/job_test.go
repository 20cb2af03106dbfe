package pages_test

import (
	"flag"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// The parts of a page's text that differ from run to run.
var unsteady = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d+ [A-Z][a-z]{2} \d\d:\d\d:\d\d( (UTC|JST))?|\d+ [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d( (UTC|JST))?|\d\d:\d\d:\d\d( UTC)?|\d{4}-\d\d-\d\d \d\d:\d\d( UTC)?`), "TIME"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:TIMEZ?|\d{4}-\d\d-\d\dTTIMEZ?`), "TIME"},
	{regexp.MustCompile(`(in )?(\d+(\.\d)? (µs|ms|s|min|h|d)\b ?)+(ago)?|\bnow\b`), "SPAN "},
	{regexp.MustCompile(`(Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday), \d+ [A-Z][a-z]+ \d{4}`), "DAY"},
	{regexp.MustCompile(`(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d+ [A-Z][a-z]{2}`), "DAY"},
	{regexp.MustCompile(`revision \d+`), "revision N"},
}

// golden compares the text of a page with testdata/name.txt.
func golden(t *testing.T, name, text string) {
	t.Helper()
	if _, main, ok := strings.Cut(text, " Set "); ok {
		text = main // without the frame
	}
	for _, u := range unsteady {
		text = u.find.ReplaceAllString(text, u.put)
	}
	text = strings.Join(strings.Fields(text), " ")
	text = strings.ReplaceAll(text, ". ", ".\n") + "\n"
	file := filepath.Join("testdata", name+".txt")
	if *update {
		filetest.Write(t, file, text)
		return
	}
	want := filetest.Read(t, file)
	if text != string(want) {
		t.Errorf("%s is not what %s says: go test ./internal/web/pages -update\ngot:\n%s\nwant:\n%s", name, file, text, want)
	}
}

// newJobs is an archive with jobs of many kinds.
func newJobs(t *testing.T) *archive {
	t.Helper()
	a := newArchive(t)
	for _, d := range []plans.Definition{
		{Job: job.Job{Name: "daily", Schedule: "0 7 * * *", Timezone: "Asia/Tokyo", Payload: []byte(`{"html":"<script>alert(1)</script>"}`)}, Owner: plans.OwnerOperator},
		{Job: job.Job{Name: "byhand", Schedule: job.OnDemand}, Owner: plans.OwnerFile},
	} {
		d.Since, d.Node, d.Nonce = time.Now().Add(-48*time.Hour), "bob@laptop", "n-"+d.Job.Name
		if _, err := a.store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.client.Pause(t.Context(), "daily"); err != nil {
		t.Fatal(err)
	}
	return a
}

// order sends the form of a page, and returns the status, the location and the text.
func (a *archive) order(t *testing.T, path string, form url.Values) (status int, to, text string) {
	t.Helper()
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w, err := c.PostForm(a.url+path, form)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "<script>alert") {
		t.Errorf("%s has foreign markup: %s", path, body)
	}
	return w.StatusCode, w.Header.Get("Location"), blanks.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(string(body), " ")), " ")
}

func TestPagesOfJobsSayWhatIsWritten(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	for name, path := range map[string]string{
		"jobs": "jobs", "jobs-filtered": "jobs?state=paused&q=AIL", "job-paused": "jobs/daily?range=week&zone=job&at=2020-01-08", "job-byhand": "jobs/byhand?range=month&at=2020-01-08",
		"trigger": "jobs/daily/trigger", "pause": "jobs/report/pause", "resume": "jobs/daily/resume", "remove": "jobs/byhand/remove", "release": "jobs/daily/release",
		"backfill": "jobs/report/backfill", "bulk": "jobs:bulk?order=pause&job=report&job=daily", "no-job": "jobs/nothing",
	} {
		status, markup, text := a.whole(t, path)
		if want := map[string]int{"no-job": 404}[name]; status != max(want, 200) {
			t.Errorf("%s: %d: %s", path, status, markup)
		}
		golden(t, name, text)
	}
}

// No slot of such a job falls due while it is paused: a count of them would always be 0.
func TestPagesOfAPausedJobWithoutAScheduleSayWhatItsEndBrings(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	for name, want := range map[string]struct {
		job         job.Job
		pause, then string
	}{
		"charge": {job.Job{On: job.On{Stream: "ORDERS", Subject: "orders.paid"}}, "messages of stream ORDERS wait there until", "messages of stream ORDERS wait there, and w"},
		"load":   {job.Job{After: []string{"daily"}}, "each slot whose turn comes is recorded as missed, until", "is recorded as missed"},
	} {
		want.job.Name = name
		if _, err := a.client.Apply(t.Context(), []job.Job{want.job}, client.ApplyOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, _, text := a.whole(t, "jobs/"+name+"/pause"); !strings.Contains(text, want.pause) {
			t.Errorf("the page that pauses it: %s", text)
		}
		if _, err := a.client.Pause(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		for _, page := range []string{"jobs/" + name, "jobs/" + name + "/resume", "jobs:bulk?order=resume&job=" + name} {
			if _, _, text := a.whole(t, page); !strings.Contains(text, want.then) || strings.Contains(text, "; policy") || strings.Contains(text, "have fallen due") {
				t.Errorf("%s: %s", page, text)
			}
		}
	}
}

func TestFieldsSayWhatIsWrongAndKeepWhatWasTyped(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	for _, tc := range []struct {
		path string
		form url.Values
		want []string
	}{
		{"jobs/daily/trigger", url.Values{"payload": {`{"to": <script>alert(1)</script>`}}, []string{"it is not JSON", `{"to": <script>alert(1)</script>`}},
		{"jobs/daily/trigger", url.Values{"at": {"tomorrow"}}, []string{`"tomorrow" is not a time`}},
		{"jobs/daily/trigger", url.Values{"at": {"2027-03-28 02:30"}, "zone": {"Europe/Berlin"}}, []string{"is skipped by the clocks of the zone Europe/Berlin: the next instant is 2027-03-28T03:00:00+02:00"}},
		{"jobs/report/backfill", url.Values{"from": {"2026-10-25 02:30"}, "zone": {"Europe/Berlin"}}, []string{"occurs twice in the zone Europe/Berlin: want 2026-10-25T02:30:00+02:00, the first, or 2026-10-25T02:30:00+01:00, the second"}},
		{"jobs/daily/trigger", url.Values{"payload": {strings.Repeat("1", 600_000)}}, []string{"it has 600000 bytes"}},
		{"jobs/daily/trigger", url.Values{"key": {"a\x00b"}}, []string{"invalid token"}},
		{"jobs/daily/trigger", url.Values{"payload": {"\xff"}}, []string{"UTF-8"}},
		{"jobs/daily/trigger", url.Values{"colour": {"red"}}, []string{`no parameter "colour"`}},
		{"jobs/report/backfill", url.Values{"from": {""}}, []string{"it is missing"}},
		{"jobs/report/backfill", url.Values{"from": {"2026-01-01"}, "to": {"yesterday"}}, []string{`"yesterday" is not a time`}},
		{"jobs/daily/resume", url.Values{"seen": {"-1"}}, []string{"not a revision"}},
		{"jobs/report/repair", url.Values{"from": {"x"}}, []string{`"x" is not a time`}},
		{"jobs:bulk", url.Values{"order": {"delete"}}, []string{`"delete" is not allowed`}},
	} {
		status, _, text := a.order(t, tc.path, tc.form)
		for _, want := range tc.want {
			if status != http.StatusUnprocessableEntity || !strings.Contains(text, want) {
				t.Errorf("%s with %.60v: %d, without %q: %.2000s", tc.path, tc.form, status, want, text)
			}
		}
	}
	for path, want := range map[string]string{
		"jobs?state=happy": `"happy" is not allowed`, "jobs?queue=none": "no job is in the queue", "jobs?limit=5": `no parameter "limit"`,
		"jobs/report?range=year": `"year" is not allowed`, "jobs/report?at=Monday": "is not a day", "jobs/report?zone=Mars": "no zone has the name",
		"jobs/report/backfill?from=x": `"x" is not a time`,
	} {
		if status, _, text := a.get(t, path); status != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d, without %q: %.2000s", path, status, want, text)
		}
	}
	if list, err := a.client.ListSlots(t.Context(), client.SlotFilter{Job: "daily"}); err != nil || len(list.Slots) > 0 {
		t.Errorf("a wrong order did something: %v, %v", list.Slots, err)
	}
}

func TestOrdersOfAPageAreCarriedOut(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	status, to, text := a.order(t, "jobs/daily/trigger", url.Values{"payload": {`{"a": 1}`}, "key": {"k/1"}})
	if status != http.StatusSeeOther || to != "./../../slots/daily:@k%2F1" {
		t.Fatalf("%d %s: %s", status, to, text)
	}
	if _, again, _ := a.order(t, "jobs/daily/trigger", url.Values{"key": {"k/1"}}); again != to {
		t.Errorf("the same order leads to %s", again)
	}
	status, _, text = a.order(t, "jobs/daily/trigger", url.Values{"payload": {`{"a": 2}`}, "key": {"k/1"}})
	if status != http.StatusUnprocessableEntity || !strings.Contains(text, "the run daily:@k/1 was triggered before with another payload") {
		t.Errorf("a payload that was changed after the order is dropped: %d %s", status, text)
	}
	if d, err := a.client.Slot(t.Context(), "daily:@k/1"); err != nil || d.State != job.Pending {
		t.Errorf("%v, %v", d.State, err)
	}
	if status, to, text = a.order(t, "jobs/daily/resume", nil); status != http.StatusSeeOther || to != "./../../jobs/daily" {
		t.Errorf("%d %s: %s", status, to, text)
	}
	if status, _, text = a.order(t, "jobs:bulk", url.Values{"order": {"pause"}, "job": {"report", "daily"}}); status != http.StatusSeeOther {
		t.Errorf("%d: %s", status, text)
	}
	for _, name := range []string{"report", "daily"} {
		if d, err := a.client.Next(t.Context(), name); err != nil || !d.Paused {
			t.Errorf("%s is not paused: %v", name, err)
		}
	}
	if status, to, _ = a.order(t, "jobs/byhand/remove", nil); status != http.StatusSeeOther || to != "./../../jobs" {
		t.Errorf("%d %s", status, to)
	}
	if _, err := a.client.Next(t.Context(), "byhand"); err == nil {
		t.Error("it was not removed")
	}
}

func TestOrderSaysWhoWasFasterAndShowsTheNewState(t *testing.T) {
	t.Parallel()
	a := newJobs(t)
	before, err := a.client.Next(t.Context(), "daily")
	if err != nil {
		t.Fatal(err)
	}
	carol, err := a.client.As("carol@desk")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := carol.Resume(t.Context(), "daily", client.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"jobs/daily/resume", "jobs/daily/remove"} {
		status, _, text := a.order(t, path, url.Values{"seen": {fmt.Sprint(before.Revision)}})
		if status != http.StatusConflict || !strings.Contains(text, "carol@desk") || !strings.Contains(text, "changed nothing") {
			t.Errorf("%s: %d: %s", path, status, text)
		}
		if path == "jobs/daily/resume" && !strings.Contains(text, "not paused") {
			t.Errorf("the new state is not shown: %s", text)
		}
	}
}

func TestHoleIsLoudAndItsButtonRepairsIt(t *testing.T) {
	t.Parallel()
	a := newArchive(t) // base failed; the slot an hour later has no record
	hole := job.NewSlot("report", a.base.Add(time.Hour)).ID()
	d, err := a.client.Next(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	mark := exchange.Watermark{Time: time.Now().UTC(), Revision: d.Revision, Node: "web2-1", Nonce: "n"}
	if _, err := a.store.Watermark().Write(t.Context(), mark, 0); err != nil {
		t.Fatal(err)
	}
	day := a.base.Add(time.Hour).Format(time.DateOnly)
	var markup string
	natstest.Eventually(t, "the hole", func() bool {
		_, markup, _ = a.get(t, "jobs/report?range=day&at="+day)
		return strings.Contains(markup, "not accounted for.")
	})
	if !strings.Contains(markup, `class="cell c-hole" href="./../slots/`+hole+`"`) {
		t.Errorf("the cell of %s is no hole: %s", hole, markup)
	}
	link := regexp.MustCompile(`href="\./\.\./(jobs/report/repair\?[^"]+)"`).FindStringSubmatch(markup)
	if link == nil {
		t.Fatalf("there is no button: %s", markup)
	}
	path := html.UnescapeString(link[1])
	if _, _, text := a.get(t, path); !strings.Contains(text, hole) || !strings.Contains(text, "offered again") {
		t.Errorf("the consequence is not said: %s", text)
	}
	_, query, _ := strings.Cut(path, "?")
	form, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	if status, _, text := a.order(t, "jobs/report/repair", form); status != http.StatusSeeOther {
		t.Fatalf("%d: %s", status, text)
	}
	if d, err := a.client.Slot(t.Context(), hole); err != nil || d.State != job.Pending {
		t.Errorf("the slot was not offered: %v, %v", d.State, err)
	}
}
