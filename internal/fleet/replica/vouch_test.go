package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

// A read without an answer changes nothing.
func TestProducerIsVouchedForByItsLiveRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now().Add(-time.Hour)
		records := map[string]exchange.NodeEvent{
			"producer": {Node: exchange.Node{State: exchange.NodeAlive, Producer: true, Started: began}},
			"worker":   {Node: exchange.Node{State: exchange.NodeAlive, Worker: true}},
			"stopped":  {Node: exchange.Node{State: exchange.NodeStopped, Producer: true}},
		}
		var mu sync.Mutex // of all three
		reads, away := 0, false
		v := newVouches(func(_ context.Context, name string) (exchange.NodeEvent, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			e, ok := records[name]
			switch {
			case away:
				return e, errors.New("no answer")
			case !ok:
				return e, job.ErrNotFound
			}
			e.Name = name
			return e, nil
		}, func(e exchange.NodeEvent) bool { return e.Node.State == exchange.NodeAlive && e.Node.Producer }, slog.New(slog.DiscardHandler))
		go v.run(t.Context())
		is := func(when, name string, want bool) {
			t.Helper()
			v.get(name)
			synctest.Wait()
			if started, ok := v.get(name); ok != want || ok && !started.Equal(began) {
				t.Errorf("%s: %s is vouched for: %v, since %v", when, name, ok, started)
			}
		}
		if _, ok := v.get("producer"); ok {
			t.Error("a node is vouched for before its record was read")
		}
		for _, name := range []string{"worker", "stopped", "unknown", "producer"} {
			is("at first", name, name == "producer")
		}
		for range 100 {
			v.get("producer")
		}
		mu.Lock()
		if reads > 4 {
			t.Errorf("%d reads of four records", reads)
		}
		away = true
		mu.Unlock()
		time.Sleep(vouchFor + time.Second)
		is("while the broker is away", "producer", true)
		mu.Lock()
		away = false
		delete(records, "producer")
		mu.Unlock()
		is("after its record was deleted", "producer", false)
		for i := range 3 * maxVouched {
			v.get(fmt.Sprint("made up ", i))
			synctest.Wait()
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		if len(v.known) > maxVouched {
			t.Errorf("%d names are remembered", len(v.known))
		}
	})
}
