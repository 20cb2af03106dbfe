// Web is a typical service: a web server that also has a job to run each second. So each of its
// processes starts a scheduler. A test of the parent folder starts four processes.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
)

// main takes as arguments the URL of the NATS server and a file to which each run adds two lines. It
// prints the URL of the web server.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url, file string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	scheduler, err := cronce.New(ctx, nc)
	if err != nil {
		return err
	}
	err = scheduler.Handle(job.Job{Name: "digest", Schedule: "* * * * * *", Overlap: job.OverlapAllow}, func(_ context.Context, run job.Run) error {
		return add(file, run.Slot.ID())
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello from", os.Getpid()) }),
		ReadHeaderTimeout: time.Second,
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	fmt.Printf("http://%s\n", listener.Addr())
	err = scheduler.Run(ctx)
	return errors.Join(err, web.Close(), ignoreClosed(<-served))
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func add(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "start %s\nend %s\n", line, line)
	return errors.Join(err, f.Close())
}
