package cronce_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestMain(m *testing.M) {
	natstest.WaitMore(8)
	goleak.VerifyTestMain(m)
}

func everySecond(name string) job.Job { return job.Job{Name: name, Schedule: "* * * * * *"} }

func nothing(context.Context, job.Run) error { return nil }

// scheduler is a replica on a connection of its own.
func scheduler(t *testing.T, srv *natstest.Server, options ...cronce.Option) (*cronce.Scheduler, *nats.Conn) {
	t.Helper()
	nc := srv.Conn()
	s, err := cronce.New(t.Context(), nc, options...)
	if err != nil {
		t.Fatal(err)
	}
	return s, nc
}

// handle adds a job and its handler.
func handle(t *testing.T, s *cronce.Scheduler, j job.Job, h job.Handler) {
	t.Helper()
	if err := s.Handle(j, h); err != nil {
		t.Fatal(err)
	}
}

// running starts Run; stop ends it and fails the test if it fails.
func running(t *testing.T, s *cronce.Scheduler) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestReplicasRunEachSlotOnce(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	var mu sync.Mutex
	starts := map[string]int{}
	enough := make(chan struct{})
	for range 4 {
		s, _ := scheduler(t, srv)
		handle(t, s, everySecond("report"), func(_ context.Context, run job.Run) error {
			mu.Lock()
			defer mu.Unlock()
			if starts[run.Slot.ID()]++; len(starts) == 4 && starts[run.Slot.ID()] == 1 {
				close(enough)
			}
			return nil
		})
		running(t, s)
	}
	select {
	case <-enough:
	case <-time.After(natstest.Patience):
		t.Error("fewer than four slots ran")
	}
	mu.Lock()
	defer mu.Unlock()
	for slot, n := range starts {
		if n != 1 {
			t.Errorf("%s was started %d times", slot, n)
		}
	}
}

// A worker requests no more messages than it can start handlers for, and leaves the others to the
// other workers.
func TestWorkersShareTheWork(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	const jobs, want = 30, 150
	var mu sync.Mutex
	work := map[string]int{}
	total := 0
	enough := make(chan struct{})
	handler := func(_ context.Context, run job.Run) error {
		<-time.After(100 * time.Millisecond) // work: one replica alone cannot do all of it
		mu.Lock()
		defer mu.Unlock()
		work[run.Node]++
		if len(work) < 2 {
			return nil // the other replica has not started yet
		}
		if total++; total == want {
			close(enough)
		}
		return nil
	}
	for range 2 {
		s, _ := scheduler(t, srv, cronce.WithConcurrency(4))
		for i := range jobs {
			handle(t, s, everySecond(fmt.Sprint("job", i)), handler)
		}
		running(t, s)
	}
	select {
	case <-enough:
	case <-time.After(natstest.Patience):
		t.Error("the slots did not run")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(work) != 2 {
		t.Fatalf("worked: %v, want two nodes", work)
	}
	for node, n := range work {
		if n < total/5 {
			t.Errorf("%s did %d of %d, want a fifth at least", node, n, total)
		}
	}
}

func TestNamespacesKeepSameNamedJobsApart(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	ran := make(chan string, 100)
	for _, namespace := range []string{"shop", "bank"} {
		s, _ := scheduler(t, srv, cronce.WithNamespace(namespace))
		handle(t, s, everySecond("report"), func(_ context.Context, run job.Run) error {
			if run.Namespace != namespace {
				t.Errorf("the handler of %s got a slot of %s", namespace, run.Namespace)
			}
			ran <- namespace
			return nil
		})
		running(t, s)
	}
	waitFor := map[string]bool{"shop": true, "bank": true}
	for len(waitFor) > 0 {
		select {
		case namespace := <-ran:
			delete(waitFor, namespace)
		case <-time.After(natstest.Patience):
			t.Fatalf("nothing ran in %v", waitFor)
		}
	}
}

func TestDomainIsWorkedInFromOutside(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t, func(o *server.Options) { o.JetStreamDomain = "hub" })
	s, _ := scheduler(t, srv, cronce.WithDomain("hub"))
	ran := make(chan job.Run, 100)
	handle(t, s, everySecond("tick"), func(_ context.Context, run job.Run) error { ran <- run; return nil })
	defer running(t, s)()
	select {
	case <-ran:
	case <-time.After(natstest.Patience):
		t.Error("no slot runs")
	}
	nc := srv.Conn()
	if s, err := cronce.New(t.Context(), nc, cronce.WithDomain("moon")); err == nil {
		t.Errorf("a domain that is not there gives %v", s)
	}
}

func TestRunReturnsAnErrorWhenTheConnectionIsClosedForGood(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, nc := scheduler(t, srv)
	handle(t, s, everySecond("report"), nothing)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	nc.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("Run returned %v", err)
		}
	case <-time.After(natstest.Patience):
		t.Error("Run goes on without a connection")
	}
}

func TestRunGoesOnWhenTheBrokerIsBack(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	ran := make(chan job.Slot, 1000)
	handle(t, s, everySecond("report"), func(_ context.Context, run job.Run) error { ran <- run.Slot; return nil })
	running(t, s)
	next(t, ran)
	srv.Restart()
	back := time.Now()
	for slot := next(t, ran); slot.At.Before(back); slot = next(t, ran) {
		continue
	}
}

func next(t *testing.T, ran <-chan job.Slot) job.Slot {
	t.Helper()
	select {
	case slot := <-ran:
		return slot
	case <-time.After(natstest.Patience):
		t.Fatal("no slot ran")
		return job.Slot{}
	}
}

func TestHandleRefusesWhatItCannotRun(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	s, _ := scheduler(t, srv)
	handle(t, s, everySecond("report"), nothing)
	for name, c := range map[string]struct {
		job     job.Job
		handler job.Handler
		says    string
	}{
		"twice":        {everySecond("report"), nothing, "has a handler already"},
		"no handler":   {everySecond("other"), nil, "handler is nil"},
		"bad name":     {everySecond("a b"), nothing, `"a b"`},
		"bad schedule": {job.Job{Name: "x", Schedule: "61 * * * *"}, nothing, "61"},
		"no schedule":  {job.Job{Name: "x"}, nothing, "schedule"},
	} {
		err := s.Handle(c.job, c.handler)
		if !errors.Is(err, job.ErrInvalid) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an invalid job and %q", name, err, c.says)
		}
	}
	stop := running(t, s)
	stop()
	if err := s.Handle(everySecond("late"), nothing); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("Handle after the end of Run: %v", err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("a second Run is accepted")
	}
}

func TestNewRefusesWrongOptions(t *testing.T) {
	t.Parallel()
	srv := natstest.Run(t)
	_, nc := scheduler(t, srv, cronce.WithSettings(job.Settings{Lease: 5 * time.Second}))
	for name, c := range map[string]struct {
		nc     *nats.Conn
		option cronce.Option
		is     error
	}{
		"nil connection": {nil, cronce.WithNamespace("x"), job.ErrInvalid},
		"nil option":     {nc, nil, job.ErrInvalid},
		"domain":         {nc, cronce.WithDomain("a.b"), job.ErrInvalid},
		"namespace":      {nc, cronce.WithNamespace("a.b"), job.ErrInvalid},
		"queue":          {nc, cronce.WithQueues(">"), job.ErrInvalid},
		"concurrency":    {nc, cronce.WithConcurrency(0), job.ErrInvalid},
		"grace":          {nc, cronce.WithGrace(-1), job.ErrInvalid},
		"node name":      {nc, cronce.WithNodeName("*"), job.ErrInvalid},
		"priority":       {nc, cronce.WithPriority(10), job.ErrInvalid},
		"first priority": {nc, cronce.WithPriority(-1), job.ErrInvalid},
		"settings":       {nc, cronce.WithSettings(job.Settings{Lease: time.Millisecond}), job.ErrInvalid},
		"other lease":    {nc, cronce.WithSettings(job.Settings{Lease: 6 * time.Second}), job.ErrMismatch},
	} {
		if _, err := cronce.New(t.Context(), c.nc, c.option); !errors.Is(err, c.is) {
			t.Errorf("%s: %v, want %v", name, err, c.is)
		}
	}
	if _, err := cronce.New(t.Context(), nc, cronce.WithoutProducing(), cronce.WithoutWorking()); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("neither to produce nor to work: %v", err)
	}
}

// A replica may be started before its broker if its connection keeps trying to connect. New logs
// that it waits for the server, and goes on when the server is up.
func TestNewWaitsForTheServerOfAConnectionThatKeepsTrying(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	nc, err := nats.Connect("nats://"+l.Addr().String(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	said := make(chan string, 10)
	opened := make(chan error, 1)
	go func() {
		_, err := cronce.New(t.Context(), nc, cronce.WithLogger(slog.New(slog.NewTextHandler(lines(said), nil))))
		opened <- err
	}()
	select {
	case line := <-said:
		if !strings.Contains(line, "waiting for the NATS server") {
			t.Errorf("it says %q", line)
		}
	case err := <-opened:
		t.Fatalf("New does not wait: %v", err)
	}
	natstest.Run(t, func(o *server.Options) { o.Port = port })
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// lines receives the lines of a log.
type lines chan string

func (l lines) Write(p []byte) (int, error) { l <- string(p); return len(p), nil }
