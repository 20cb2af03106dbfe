//go:build long

package cronce_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
)

func env(name string, value int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return value
}

func TestMeasureWaiting(t *testing.T) {
	n, workers, rtt, work := env("RUNS", 300), env("WORKERS", 1), time.Duration(env("RTT_MS", 2))*time.Millisecond, time.Duration(env("WORK_MS", 200))*time.Millisecond
	seconds := env("SECONDS", 20)
	server := natstest.Run(t)
	var started, ticks atomic.Int64
	var mu sync.Mutex
	var worst time.Duration
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var first *cronce.Scheduler
	for range workers {
		p := natstest.NewProxy(t, server.ClientURL())
		p.Set(proxy.Fault{Delay: rtt / 2, Late: rtt / 2})
		nc := natstest.Connect(t, p.URL())
		s, err := cronce.New(ctx, nc)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = s
		}
		handle := func(j job.Job, h job.Handler) {
			if err := s.Handle(j, h); err != nil {
				t.Fatal(err)
			}
		}
		handle(job.Job{Name: "many", Schedule: job.OnDemand}, func(context.Context, job.Run) error {
			started.Add(1)
			time.Sleep(work)
			return nil
		})
		handle(job.Job{Name: "tick", Schedule: "@every 1s", Overlap: job.OverlapAllow}, func(_ context.Context, run job.Run) error {
			late := time.Since(run.Due)
			mu.Lock()
			worst = max(worst, late)
			mu.Unlock()
			ticks.Add(1)
			return nil
		})
		all.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	natstest.Eventually(t, "ticks", func() bool { return ticks.Load() > 0 })
	nc := natstest.Connect(t, server.ClientURL())
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	var orders []client.TriggerOptions
	for i := range n {
		orders = append(orders, client.TriggerOptions{Key: fmt.Sprint("k", i)})
	}
	begun := time.Now()
	if _, err := c.TriggerMany(ctx, "many", orders); err != nil {
		t.Fatal(err)
	}
	t.Logf("triggered %d in %v", n, time.Since(begun))
	for i := range seconds {
		<-time.After(time.Second)
		if i%5 == 4 || i < 3 {
			info, err := server.JetStream().Stream(ctx, "cronce_slots")
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			t.Logf("%v: %d started, %d ticks, worst %v, in queue %d, heap %d MB, goroutines %d", time.Since(begun).Round(time.Second), started.Load(), ticks.Load(), worst.Round(time.Millisecond), info.CachedInfo().State.Msgs, m.HeapAlloc>>20, runtime.NumGoroutine())
			worst = 0
			mu.Unlock()
		}
	}
	stop()
	all.Wait()
}
