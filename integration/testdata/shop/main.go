// Command shop is an HTTP service in a module of its own, which uses only what "go doc" and the guide
// describe. It charges orders in the background, shows the progress of each charge, syncs its stock
// every second, pauses the syncs during a migration, and lists and retries failed charges.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

// order is the payload of a charge.
type order struct {
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// receipt is the result of a charge.
type receipt struct {
	Number int `json:"number"`
	Cents  int `json:"cents"`
}

type shop struct {
	client *client.Client

	bankDown  atomic.Bool // charges fail
	bankSlow  chan bool   // a charge that finds "hold" receiving from it stops half way, until "release" receives
	migrating atomic.Bool
	disturbed atomic.Int64 // syncs that ran during a migration
	syncs     atomic.Int64
	charges   atomic.Int64
}

func (s *shop) charge(ctx context.Context, run job.Run, o order) error {
	run.Progress(1, 2, "asking the bank")
	run.Logger.Info("charging", "customer", o.Customer)
	if s.bankDown.Load() {
		return job.Permanent(errors.New("the bank does not answer"))
	}
	select {
	case s.bankSlow <- true:
		select {
		case s.bankSlow <- false:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	default:
	}
	run.Progress(2, 2, "writing the receipt")
	return run.SetResult(receipt{Number: int(s.charges.Add(1)), Cents: o.Cents})
}

func (s *shop) sync(context.Context, job.Run) error {
	if s.migrating.Load() {
		s.disturbed.Add(1)
	}
	s.syncs.Add(1)
	return nil
}

// migrate pauses the syncs, waits for those that fell due before, and calls work.
func (s *shop) migrate(ctx context.Context, work func()) error {
	if _, err := s.client.Pause(ctx, "sync"); err != nil {
		return err
	}
	if err := s.client.Drain(ctx, "sync"); err != nil {
		return err
	}
	s.migrating.Store(true)
	work()
	s.migrating.Store(false)
	_, err := s.client.Resume(ctx, "sync", client.ResumeOptions{})
	return err
}

// answer writes a value or an error as JSON.
func answer(w http.ResponseWriter, status int, v any, err error) {
	switch {
	case err == nil:
	case errors.Is(err, job.ErrInvalid):
		status = http.StatusBadRequest
	case errors.Is(err, job.ErrNotFound):
		status = http.StatusNotFound
	case errors.Is(err, job.ErrConflict):
		status = http.StatusConflict
	case errors.Is(err, job.ErrUnknown), errors.Is(err, context.DeadlineExceeded):
		status = http.StatusServiceUnavailable
	default:
		status = http.StatusInternalServerError
	}
	if err != nil {
		v = map[string]string{"error": err.Error()}
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (s *shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /orders/{id}", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		payload, err := io.ReadAll(r.Body)
		if err != nil {
			answer(w, http.StatusBadRequest, nil, err)
			return
		}
		run, err := s.client.Trigger(ctx, "charge", client.TriggerOptions{Key: r.PathValue("id"), Payload: payload})
		status := http.StatusCreated
		if !run.New {
			status = http.StatusOK
		}
		answer(w, status, map[string]any{"id": run.ID(), "state": run.State}, err)
	})
	// handle registers a handler that answers with what ask returns. id is the ID of the slot of the order
	// that the path names.
	handle := func(pattern string, ask func(ctx context.Context, id string) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), patience)
			defer cancel()
			v, err := ask(ctx, "charge:@"+r.PathValue("id"))
			answer(w, http.StatusOK, v, err)
		})
	}
	handle("GET /orders/{id}", func(ctx context.Context, id string) (any, error) { return s.client.Slot(ctx, id) })
	handle("GET /orders/{id}/outcome", func(ctx context.Context, id string) (any, error) { return s.client.Wait(ctx, id) })
	handle("GET /orders/{id}/progress", func(ctx context.Context, id string) (any, error) { return s.client.Running(ctx, id) })
	handle("GET /orders/last", func(ctx context.Context, _ string) (any, error) { return s.client.Last(ctx, "charge") })
	failed := client.SlotFilter{Job: "charge", States: []job.State{job.Failed}, Limit: 100, Newest: true}
	handle("GET /failures", func(ctx context.Context, _ string) (any, error) {
		list, err := s.client.ListSlots(ctx, failed)
		return list.Slots, err
	})
	handle("POST /failures/retry", func(ctx context.Context, _ string) (any, error) {
		retried := []string{}
		for slot, err := range s.client.Slots(ctx, failed) {
			if err == nil {
				_, err = s.client.Retry(ctx, slot.ID)
			}
			if err != nil {
				return nil, err
			}
			retried = append(retried, slot.ID)
		}
		return retried, nil
	})
	handle("POST /migrations", func(ctx context.Context, _ string) (any, error) {
		err := s.migrate(ctx, func() { time.Sleep(2500 * time.Millisecond) }) // two syncs would be due meanwhile
		return map[string]int64{"disturbed": s.disturbed.Load(), "syncs": s.syncs.Load()}, err
	})
	mux.HandleFunc("GET /syncs", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.syncs.Load(), nil) })
	mux.HandleFunc("POST /bank/{state}", func(w http.ResponseWriter, r *http.Request) {
		switch r.PathValue("state") {
		case "down":
			s.bankDown.Store(true)
		case "up":
			s.bankDown.Store(false)
		case "hold", "release": // "hold" stops the next charge half way, "release" lets it go on
			select {
			case <-s.bankSlow:
			case <-r.Context().Done():
			}
		}
		answer(w, http.StatusOK, nil, nil)
	})
	return mux
}

// patience bounds how long a request waits for the broker. It is longer than a restart of the broker.
const patience = 5 * time.Minute

func run(ctx context.Context, url, listen string) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	scheduler, err := cronce.New(ctx, nc)
	if err != nil {
		return err
	}
	s := &shop{client: scheduler.Client(), bankSlow: make(chan bool)}
	charge := job.Job{Name: "charge", Schedule: job.OnDemand, Overlap: job.OverlapAllow}
	if err := cronce.HandleFunc(scheduler, charge, s.charge); err != nil {
		return err
	}
	if err := scheduler.Handle(job.Job{Name: "sync", Schedule: "@every 1s"}, s.sync); err != nil {
		return err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	web := &http.Server{Handler: s.routes(), ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(l) }()
	defer web.Close()
	log.Printf("listening on %s", l.Addr())
	return scheduler.Run(ctx)
}

func main() {
	url := flag.String("url", nats.DefaultURL, "the NATS server")
	listen := flag.String("listen", "127.0.0.1:8081", "where to listen for HTTP")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url, *listen); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done")
}
