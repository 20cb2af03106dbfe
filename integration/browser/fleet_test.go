//go:build long

package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/web"
)

// hostile is text that handlers return: markup, an escape of a terminal, a mark that turns the
// direction of text, and a long word.
const hostile = "<script>alert(1)</script><img src=x onerror=alert(2)> \x1b[31m \u202egnp.exe\u202c " +
	"averyveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryveryverylongword"

// fleet is a namespace with three days of history, a node, and a dashboard.
type fleet struct {
	url    string // of the first page
	client *client.Client
	store  *kv.Store
	nats   *natstest.Server
	lines  chan string // the handler of the job "talkative" writes them, and returns when the channel is closed
}

// past is a job with three days of history. Slot i of n has state(i, n), and took took(i).
type past struct {
	job   job.Job
	took  func(i int) time.Duration
	state func(i, n int) job.State // "" if the slot has no record
	err   string
}

var history = []past{
	{job: job.Job{Name: "invoice-export", Schedule: "0 * * * *", Payload: []byte(`{"format":"csv","to":["billing@example.com"]}`)},
		took: func(i int) time.Duration { return time.Duration(40+i*7%23) * time.Second },
		state: func(i, n int) job.State {
			switch n - i {
			case 9:
				return "" // a hole
			case 14:
				return job.Failed
			}
			return job.Succeeded
		}, err: "connect to ftp.example.com:21: connection refused"},
	{job: job.Job{Name: "heartbeat", Schedule: "*/5 * * * *"}, took: func(i int) time.Duration { return time.Duration(80+i*37%60) * time.Millisecond },
		state: func(int, int) job.State { return job.Succeeded }},
	{job: job.Job{Name: "morning-report", Schedule: "0 7 * * 1-5", Timezone: "Europe/Berlin"}, took: func(int) time.Duration { return 95 * time.Second },
		state: func(int, int) job.State { return job.Succeeded }},
	{job: job.Job{Name: "nightly-backup", Schedule: "30 2 * * *", Timezone: "America/New_York"}, took: func(i int) time.Duration { return time.Duration(18+i) * time.Minute },
		state: func(int, int) job.State { return job.Succeeded }},
	{job: job.Job{Name: "currency-rates", Schedule: "*/15 * * * *"}, took: func(i int) time.Duration { return time.Duration(900+i*13%400) * time.Millisecond },
		state: func(i, n int) job.State {
			if n-i <= 3 || i%17 == 5 {
				return job.Failed
			}
			return job.Succeeded
		}, err: "GET https://rates.example.com/latest: 503 Service Unavailable"},
	{job: job.Job{Name: "search-index", Schedule: "*/10 * * * *", Queue: strings.Repeat("search", 10), Overlap: job.OverlapAllow}, took: func(i int) time.Duration { return time.Duration(50+i*31%80) * time.Second },
		state: func(i, n int) job.State {
			if i%13 == 7 {
				return job.Skipped
			}
			return job.Succeeded
		}},
}

// newFleet starts a fleet, with its dashboard below the path prefix.
func newFleet(t *testing.T, prefix string) *fleet {
	t.Helper()
	s := natstest.Run(t)
	nc := s.Conn()
	ctx := t.Context()
	if _, err := space.Setup(ctx, natstest.JetStream(t, nc), kv.Options{}); err != nil {
		t.Fatal(err)
	}
	store, err := kv.Open(ctx, natstest.JetStream(t, nc), kv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{store: store, nats: s, lines: make(chan string)}
	for _, p := range history {
		f.write(t, p)
	}
	f.run(t, nc)
	if f.client, err = client.New(ctx, nc, client.WithOperator("alice@laptop")); err != nil {
		t.Fatal(err)
	}
	f.orders(t)
	f.lose(t)
	h := web.New(f.client, web.WithUser(func(*http.Request) string { return "alice@laptop" }))
	mux := http.NewServeMux()
	mux.Handle(prefix+"/", http.StripPrefix(prefix, h))
	site := httptest.NewServer(mux)
	t.Cleanup(site.Close)
	t.Cleanup(h.Close)
	f.url = site.URL + prefix
	return f
}

// write stores a job that has existed for three days, and the records of its slots.
func (f *fleet) write(t *testing.T, p past) {
	t.Helper()
	now := time.Now().UTC()
	since := now.Add(-72 * time.Hour)
	d := plans.Definition{Job: p.job, Since: since, Owner: plans.OwnerOperator, Node: "bob@laptop", Nonce: "seed-" + p.job.Name}
	revision, err := f.store.Jobs().Write(t.Context(), d, 0)
	if err != nil {
		t.Fatal(err)
	}
	schedule, err := job.ParseSchedule(p.job.Name, p.job.Plan())
	if err != nil {
		t.Fatal(err)
	}
	n, i := schedule.Count(since, now.Add(-time.Minute)), 0
	for at := range schedule.Between(since, now.Add(-time.Minute)) {
		state := p.state(i, n)
		i++
		if state == "" {
			continue
		}
		late := time.Duration(12+i*29%140) * time.Millisecond
		r := job.Record{
			Slot: job.NewSlot(p.job.Name, at), Queue: job.DefaultQueue, State: state, Node: "web-1", Nonce: fmt.Sprint("seed", i),
			JobRevision: revision, Due: at, Published: at.Add(late / 2), Publisher: "web-2", Finished: at.Add(late + p.took(i)),
		}
		if state != job.Skipped {
			r.Attempt, r.Attempts = 1, []job.Attempt{{Number: 1, Node: "web-1", Fence: uint64(1000 + i), Started: at.Add(late)}}
		}
		if state == job.Failed {
			r.Error = p.err
		}
		if _, err := f.store.Ledger().Write(t.Context(), r, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// lose removes the record of the missed slot of invoice-export, which the node has written. So the slot is not accounted
// for.
func (f *fleet) lose(t *testing.T) {
	t.Helper()
	var hole job.Slot
	natstest.Eventually(t, "a missed slot", func() bool {
		for e, err := range f.store.Ledger().List(t.Context(), kv.ListFilter{Job: "invoice-export"}) {
			if err == nil && e.State == job.Missed {
				hole = e.Slot
			}
		}
		return hole.Job != ""
	})
	bucket, err := f.store.JS.KeyValue(t.Context(), "cronce_ledger")
	if err == nil {
		err = bucket.Delete(t.Context(), hole.Key())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a node with a handler for most jobs.
func (f *fleet) run(t *testing.T, nc *nats.Conn) {
	t.Helper()
	s, err := cronce.New(t.Context(), nc, cronce.WithGrace(0), cronce.WithNodeName("web-1"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	handlers := map[string]job.Handler{
		"invoice-export": func(context.Context, job.Run) error { return nil },
		"heartbeat":      func(context.Context, job.Run) error { return nil },
		"morning-report": func(context.Context, job.Run) error { return nil },
		"currency-rates": func(context.Context, job.Run) error { return job.Permanent(errors.New("503 Service Unavailable")) },
		"search-index":   rebuild,
		"talkative":      f.chat,
		"hostile":        func(context.Context, job.Run) error { return job.Permanent(errors.New(hostile)) },
	}
	for name, h := range handlers {
		j := job.Job{Name: name, Schedule: "0 0 1 1 *"}
		for _, p := range history {
			if p.job.Name == name {
				j = p.job
			}
		}
		if err := s.Handle(j, h); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { defer close(ended); _ = s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
}

// rebuild runs until its context ends if it was triggered. For a planned slot, which may fall due during a test, it
// returns at once.
func rebuild(ctx context.Context, run job.Run) error {
	if run.Slot.Token != "" {
		<-ctx.Done()
	}
	return nil
}

// chat writes the lines that the test sends, until the test closes the channel.
func (f *fleet) chat(ctx context.Context, run job.Run) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case line, more := <-f.lines:
			if !more {
				return nil
			}
			fmt.Fprintln(run.Output, line)
		}
	}
}

// orders triggers a run that fails with hostile text and a run that does not end, and pauses a job. The pages show all
// three.
func (f *fleet) orders(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
	defer cancel()
	natstest.Eventually(t, "a node", func() bool {
		d, err := f.client.Job(ctx, "hostile")
		return err == nil && len(d.Handlers) == 1
	})
	failed, err := f.client.Trigger(ctx, "hostile", client.TriggerOptions{Key: `<b>"key"</b>`, Payload: []byte(`{"html":"<script>alert(3)</script>"}`)})
	if err == nil {
		_, err = failed.Wait(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	goesOn, err := f.client.Trigger(ctx, "search-index", client.TriggerOptions{Key: "rebuild"})
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "a running slot", func() bool {
		d, err := f.client.Slot(ctx, goesOn.ID())
		return err == nil && d.State == job.Running
	})
	if _, err := f.client.Pause(ctx, "nightly-backup"); err != nil {
		t.Fatal(err)
	}
}
