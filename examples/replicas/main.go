// Replicas is a service with a job. Each of its replicas runs the scheduler, and all of them are
// configured alike: none is the one that schedules. up.sh starts three replicas.
//
// The argument is the name of the replica. NATS_URL names the NATS server.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
)

func main() {
	name := "replica"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, name); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string) error {
	// RetryOnFailedConnect: the servers may start later than this process.
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	scheduler, err := cronce.New(ctx, nc, cronce.WithNodeName(name))
	if err != nil {
		return err
	}
	err = scheduler.Handle(job.Job{Name: "digest", Schedule: "* * * * * *", Overlap: job.OverlapAllow}, func(_ context.Context, run job.Run) error {
		fmt.Printf("%s ran %s\n", name, run.Slot.ID())
		return nil
	})
	if err != nil {
		return err
	}
	return scheduler.Run(ctx)
}
