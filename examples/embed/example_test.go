// Package embed shows a service that schedules a job from every one of its
// replicas.
package embed

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
)

// service is what each replica runs.
func service(ctx context.Context, nc *nats.Conn, work job.Handler) error {
	s, err := cronce.New(ctx, nc)
	if err != nil {
		return err
	}
	err = s.Handle(job.Job{Name: "report", Schedule: "* * * * * *"}, work)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// Three replicas schedule the same job each second. Each slot runs once, on one of them.
func Example() {
	url, stop := natsServer()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	var mu sync.Mutex
	ran := map[string]int{}
	work := func(_ context.Context, run job.Run) error {
		mu.Lock()
		defer mu.Unlock()
		ran[run.Slot.ID()]++
		if len(ran) == 3 {
			cancel() // that is enough for an example
		}
		return nil
	}

	var replicas sync.WaitGroup
	for range 3 {
		replicas.Go(func() {
			nc, err := nats.Connect(url)
			if err != nil {
				fmt.Println(err)
				return
			}
			defer nc.Close()
			if err := service(ctx, nc, work); err != nil {
				fmt.Println(err)
			}
		})
	}
	replicas.Wait()

	most := 0
	for _, n := range ran {
		most = max(most, n)
	}
	fmt.Println("at least three slots:", len(ran) >= 3)
	fmt.Println("runs of each slot:", most)
	// Output:
	// at least three slots: true
	// runs of each slot: 1
}

// natsServer stands for the NATS server that you run already.
func natsServer() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "cronce-example")
	if err != nil {
		panic(err)
	}
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true,
	})
	if err != nil {
		panic(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		panic("the server does not start")
	}
	return srv.ClientURL(), func() { srv.Shutdown(); srv.WaitForShutdown(); _ = os.RemoveAll(dir) }
}

// What the README shows: a job of a service that has a connection already.
func Example_readme() {
	sendReport := func(context.Context, time.Time) error { return nil }
	_ = func(ctx context.Context, nc *nats.Conn) error {
		s, err := cronce.New(ctx, nc) // nc is your *nats.Conn
		if err != nil {
			return err
		}
		err = s.Handle(job.Job{Name: "report", Schedule: "0 7 * * MON-FRI", Timezone: "Europe/Berlin"},
			func(ctx context.Context, run job.Run) error { return sendReport(ctx, run.Slot.At) })
		if err != nil {
			return err
		}
		return s.Run(ctx) // until ctx ends; running handlers get their grace
	}
}
