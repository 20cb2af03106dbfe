package pages_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/pages"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// newCrowd is a namespace with n jobs that have long names, and slots of the last hours, and its
// pages.
func newCrowd(t testing.TB, n, slots int) (url string, store *kv.Store, s *natstest.Server) {
	t.Helper()
	s = natstest.Run(t)
	store = kvtest.Open(t, s.JetStream(), kv.Options{})
	begin := time.Now().UTC().Truncate(time.Minute).Add(-time.Duration(slots) * time.Minute)
	for i := range n {
		name := fmt.Sprintf("a-job-with-a-name-as-long-as-a-name-of-a-job-may-be-%d", i)
		d := plans.Definition{Job: job.Job{Name: name, Schedule: "* * * * *"}, Since: begin, Nonce: "n" + name}
		if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
			t.Fatal(err)
		}
		for k := range slots {
			at := begin.Add(time.Duration(k+1) * time.Minute)
			r := job.Record{Slot: job.NewSlot(name, at), State: job.Succeeded, Due: at, Published: at, Node: "web1-1", Queue: "default", Attempt: 1, Nonce: "n",
				Finished: at.Add(time.Second), Attempts: []job.Attempt{{Number: 1, Node: "web1-1", Fence: 1, Started: at}}}
			answered := make(chan error, 1)
			store.Ledger().Send(t.Context(), r, 0, func(_ uint64, err error) { answered <- err })
			if k == slots-1 {
				if err := <-answered; err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	c, err := client.New(t.Context(), s.Conn())
	if err != nil {
		t.Fatal(err)
	}
	site := pages.New(shell.Config{
		Client:    c,
		Subscribe: func(context.Context) (<-chan client.Event, func(), error) { return nil, func() {}, nil },
	})
	server := httptest.NewServer(site)
	t.Cleanup(func() { site.Close(); server.Close() })
	return server.URL + "/", store, s
}

// fetch returns a page, and its size as it was sent.
func fetch(t testing.TB, url string) (status int, body string, sent int) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip")
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	data, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(plain), len(data)
}

func TestPagesOfManyJobsStaySmall(t *testing.T) {
	t.Parallel()
	url, _, _ := newCrowd(t, 250, 3)
	natstest.Eventually(t, "the jobs", func() bool { status, _, _ := fetch(t, url+"jobs"); return status == 200 })
	seen := 0
	for path := "jobs"; path != ""; {
		status, body, sent := fetch(t, url+path)
		rows := strings.Count(body, "<a data-row ")
		seen += rows
		if status != 200 || rows > 100 || sent > 40_000 {
			t.Fatalf("%s: %d, %d rows, %d bytes", path, status, rows, sent)
		}
		_, next, more := strings.Cut(body, `<a href="?after=`)
		path = ""
		if more {
			path = "jobs?after=" + strings.SplitN(next, `"`, 2)[0]
		}
	}
	if seen != 250 {
		t.Errorf("the pages have %d of 250 jobs", seen)
	}
}

func TestPageShowsWhatItKnewWhileTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	url, _, s := newCrowd(t, 1, 1)
	for _, path := range []string{"jobs", "health"} {
		if status, body, _ := fetch(t, url+path); status != 200 || path == "jobs" && !strings.Contains(body, "may-be-0") {
			t.Fatalf("%s: %d: %s", path, status, body)
		}
	}
	s.Stop()
	var body string
	natstest.Eventually(t, "a page that says so", func() bool {
		var status int
		status, body, _ = fetch(t, url+"jobs")
		return status == http.StatusServiceUnavailable
	})
	if !strings.Contains(body, "The NATS server does not answer") || !strings.Contains(body, "may-be-0") || !strings.Contains(body, "data-away") {
		t.Errorf("what was known is not shown: %s", body)
	}
	if status, body, _ := fetch(t, url+"health"); status != http.StatusServiceUnavailable || !strings.Contains(body, "The NATS server does not answer") {
		t.Errorf("the page of what was computed before: %d: %s", status, body)
	}
	if status, body, _ := fetch(t, url+"jobs?state=paused"); status != http.StatusServiceUnavailable || !strings.Contains(body, "has not answered in time") {
		t.Errorf("a page that was never shown: %d: %s", status, body)
	}
	s.Start()
	natstest.Eventually(t, "the page", func() bool { status, _, _ := fetch(t, url+"jobs"); return status == 200 })
}

// BenchmarkPageOfAThousandJobs measures a page that is requested again and again.
func BenchmarkPageOfAThousandJobs(b *testing.B) {
	url, _, _ := newCrowd(b, 1000, 60)
	for _, path := range []string{"", "jobs", "jobs/a-job-with-a-name-as-long-as-a-name-of-a-job-may-be-7"} {
		b.Run("/"+path[:min(len(path), 5)], func(b *testing.B) {
			natstest.Eventually(b, "the page", func() bool { status, _, _ := fetch(b, url+path); return status == 200 })
			sent := 0
			for b.Loop() {
				_, _, sent = fetch(b, url+path)
			}
			b.ReportMetric(float64(sent), "bytes/page")
		})
	}
}
