package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// happens returns an event of the n-th run of a job.
func happens(name string, kind job.EventKind, n int) job.Event {
	return job.Event{V: codec.Version, Kind: kind, Time: time.Now().UTC(), Node: "web1", ID: fmt.Sprintf("%s:@%d", name, n), Job: name}
}

func TestEventsLosesNoKeptEventOverRestartsAndContinuesAfterASequence(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c, err := client.New(t.Context(), natstest.Connect(t, s.server.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	var told sync.WaitGroup
	defer told.Wait()
	tell := func(n int) {
		for _, name := range []string{"report", "other"} {
			if err := s.store.StoreEvent(t.Context(), happens(name, job.EventFailed, n)); err != nil {
				t.Error(err)
			}
		}
	}
	tell(1)
	var zero, last uint64
	var got []string
	for e, err := range c.Events(t.Context(), client.EventFilter{Job: "report", After: &zero}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Sequence == 0 {
			t.Errorf("%s is kept, and has no sequence", e.ID)
		}
		got, last = append(got, e.ID), e.Sequence
		switch len(got) {
		case 1:
			told.Go(func() { tell(2) })
		case 2:
			s.server.Restart()
			told.Go(func() { tell(3) })
		}
		if len(got) == 3 {
			break
		}
	}
	if fmt.Sprint(got) != "[report:@1 report:@2 report:@3]" {
		t.Errorf("got %v", got)
	}
	told.Wait()
	tell(4)
	for e, err := range c.Events(t.Context(), client.EventFilter{Job: "report", After: &last}) {
		if err != nil || e.ID != "report:@4" {
			t.Errorf("afterwards: %+v, %v", e, err)
		}
		break
	}
}

// afterwards calls then once, beside the reader, when the reader has read the kept events.
type afterwards struct {
	attach.News
	then func()
}

func (a *afterwards) EventsAfter(ctx context.Context, name string, at *wire.Cursor, f func(job.Event, uint64, error) bool) error {
	err := a.News.EventsAfter(ctx, name, at, f)
	if then := a.then; then != nil {
		a.then = nil
		go then()
	}
	return err
}

// The broker stores the events 1 to 4, loses its files, and stores 5 and 6. The copy of its files has
// 1 and 2.
func TestEventsGoesOnWithABrokerThatWasCreatedAnewOrRestored(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		restored bool
		after    uint64
		want     string
	}{
		"created anew":                   {false, 0, "[1 2 3 4 5 6]"},
		"created anew, nothing was read": {false, 4, "[5 6]"},
		"restored":                       {true, 0, "[1 2 3 4 5 6]"},
		"restored, nothing was read":     {true, 4, "[5 6]"},
		"created anew before":            {false, 99, "[1 2 3 4 5 6]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var files string
			broker := natstest.Run(t, func(o *server.Options) { files = o.StoreDir })
			s := siteAt(t, broker, broker.ClientURL())
			tell := func(numbers ...int) {
				for _, n := range numbers {
					if err := s.store.StoreEvent(t.Context(), happens("report", job.EventFailed, n)); err != nil {
						t.Error(err)
					}
				}
			}
			tell(1, 2)
			broker.Stop()
			copied := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(copied, os.DirFS(files)); err != nil {
				t.Fatal(err)
			}
			broker.Start()
			tell(3, 4)
			news := &afterwards{s.store, func() {
				broker.Stop()
				err := os.RemoveAll(files)
				if c.restored {
					err = errors.Join(err, os.CopyFS(files, os.DirFS(copied)))
				}
				broker.Start()
				if _, openErr := kv.Open(t.Context(), s.store.JS, kv.Options{}); err != nil || openErr != nil { // it creates the namespace
					t.Error(err, openErr)
				}
				tell(5)
			}}
			var got []int
			ctx, cancel := context.WithTimeout(t.Context(), natstest.Patience)
			defer cancel()
			for e, err := range client.Attach(attach.Parts{News: news}).Events(ctx, client.EventFilter{Job: "report", After: &c.after}) {
				var n int
				if _, scanErr := fmt.Sscanf(e.ID, "report:@%d", &n); err != nil || scanErr != nil {
					t.Fatalf("%+v, %v", e, err)
				}
				if got = append(got, n); n == 5 {
					tell(6)
				}
				if n == 6 {
					break
				}
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestEventsAreLiveAndFiltered(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := s.store.StoreEvent(t.Context(), happens("report", job.EventFailed, 0)); err != nil { // before
		t.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for n := 1; ; n++ {
			for _, kind := range []job.EventKind{job.EventRetrying, job.EventSucceeded} {
				_ = s.store.Emit(happens("report", kind, n))
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	for e, err := range s.Events(t.Context(), client.EventFilter{Kinds: []job.EventKind{job.EventSucceeded}}) {
		if err != nil || e.Kind != job.EventSucceeded || e.Sequence != 0 {
			t.Errorf("%+v, %v", e, err)
		}
		break
	}
	for _, f := range []client.EventFilter{{Job: "a.b"}, {Kinds: []job.EventKind{""}}} {
		for _, err := range s.Events(t.Context(), f) {
			if !errors.Is(err, job.ErrInvalid) {
				t.Errorf("%+v: %v, want invalid", f, err)
			}
		}
	}
}

func TestSlotsIteratesOverAllAndStopsAtTheLimit(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	noon := time.Now().UTC().Truncate(time.Hour)
	for i := range 5 {
		s.record(t, job.NewSlot("report", noon.Add(-time.Duration(i)*time.Hour)), job.Failed)
	}
	s.trigger(t, order{Job: "report", Key: "waits"})
	for want, f := range map[int]client.SlotFilter{6: {}, 5: {States: []job.State{job.Failed}}, 3: {Limit: 3}, 2: {Limit: 2, Newest: true}} {
		n := 0
		var last time.Time
		for row, err := range s.Slots(t.Context(), f) {
			if err != nil || row.Slot.Before(last) && !row.Slot.IsZero() {
				t.Errorf("%+v: %+v after %v, %v", f, row, last, err)
			}
			last = row.Slot
			n++
		}
		if n != want {
			t.Errorf("%+v: %d slots, want %d", f, n, want)
		}
	}
	if row, err := s.Last(t.Context(), "report"); err != nil || !row.Slot.Equal(noon) {
		t.Errorf("last: %+v, %v; want that of %v", row, err, noon)
	}
	if _, err := s.Last(t.Context(), "none"); !errors.Is(err, job.ErrNotFound) {
		t.Errorf("last of no job: %v", err)
	}
	for _, err := range s.Slots(t.Context(), client.SlotFilter{Newest: true}) {
		if !errors.Is(err, job.ErrInvalid) {
			t.Errorf("newest without a limit: %v", err)
		}
	}
}

func TestDoctorFindsThatNoNodeRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.define(t, plans.Definition{Job: job.Job{Name: "report", Schedule: "@hourly"}})
	c, err := client.New(t.Context(), natstest.Connect(t, s.server.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	d, err := c.Doctor(t.Context(), client.DoctorOptions{})
	if err != nil || d.OK || len(d.Findings) == 0 || d.Findings[0].What == "" || d.Version == "" {
		t.Errorf("%+v, %v; want findings", d, err)
	}
}

func TestDoctorLeavesNothingOnTheConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	nc := natstest.Connect(t, s.server.ClientURL())
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	var after [3]int
	for i := range after {
		if _, err := c.Doctor(t.Context(), client.DoctorOptions{}); err != nil {
			t.Fatal(err)
		}
		after[i] = nc.NumSubscriptions()
	}
	if after[2] != after[0] {
		t.Errorf("%v subscriptions after three calls; want as many after the last as after the first", after)
	}
}
