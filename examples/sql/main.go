// Sql is a service whose job pays into an account in PostgreSQL exactly once for each slot, although
// a handler may start twice. The SQL statements beside this file store each slot's ID and the
// largest fence that the database has seen for it.
//
// The service runs its statements with psql, in place of a driver, so PGHOST, PGUSER and the other
// variables of psql name the database. NATS_URL names the NATS server.
package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/job"
)

//go:embed *.sql
var statements embed.FS

func main() {
	var s service
	at := flag.String("at", time.Now().Add(2*time.Second).UTC().Format(time.RFC3339), "when to pay")
	flag.StringVar(&s.hold, "hold", "", "before paying, wait until this `folder` has a file named after the number of the attempt")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx, "@at "+*at); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type service struct{ hold string }

func (s service) run(ctx context.Context, schedule string) error {
	if _, err := sql("schema.sql", job.Run{}); err != nil {
		return err
	}
	nc, err := nats.Connect(os.Getenv("NATS_URL"), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	scheduler, err := cronce.New(ctx, nc)
	if err != nil {
		return err
	}
	err = scheduler.Handle(job.Job{Name: "pay", Schedule: schedule, Retry: job.Retry{Attempts: 9, Backoff: 100 * time.Millisecond}}, s.pay)
	if err != nil {
		return err
	}
	return scheduler.Run(ctx)
}

// pay is the handler. It does not ask whether its claim still stands: the database decides.
func (s service) pay(_ context.Context, run job.Run) error {
	say := func(what string) {
		fmt.Printf("%s attempt %d fence %d: %s\n", run.Slot.ID(), run.Attempt, run.Fence, what)
	}
	mine, err := sql("begin.sql", run)
	if err != nil {
		return err
	}
	if !mine {
		say("done already")
		return nil
	}
	say("begun")
	s.work(run.Attempt)
	paid, err := sql("effect.sql", run)
	switch {
	case err != nil:
		return err
	case !paid:
		say("refused")
	default:
		say("paid")
	}
	if s.lost(run.Attempt) {
		return errors.New("the answer was lost: unknown whether it has paid")
	}
	return nil
}

// work stands for work that may take longer than the lease. It ignores its context, as much code
// does.
func (s service) work(attempt int) {
	for s.hold != "" && !exists(s.hold, strconv.Itoa(attempt)) {
		time.Sleep(10 * time.Millisecond)
	}
}

// lost simulates that the answer of the database was lost, so that the attempt does not know whether
// it has paid.
func (s service) lost(attempt int) bool {
	return s.hold != "" && exists(s.hold, "lost-"+strconv.Itoa(attempt))
}

func exists(dir, name string) bool {
	_, err := os.Stat(dir + "/" + name)
	return err == nil
}

// sql runs the statements of a file for an attempt, and reports whether they returned a row.
func sql(file string, run job.Run) (bool, error) {
	text, err := statements.ReadFile(file)
	if err != nil {
		return false, err
	}
	args := []string{"-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"}
	if run.Slot.Job != "" {
		args = append(args, "-v", "slot="+run.Slot.ID(), "-v", "fence="+strconv.FormatUint(run.Fence, 10))
	}
	var out, errs bytes.Buffer
	psql := exec.Command("psql", args...)
	psql.Stdin, psql.Stdout, psql.Stderr = bytes.NewReader(text), &out, &errs
	if err := psql.Run(); err != nil {
		return false, fmt.Errorf("%s: %w: %s", file, err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()) != "", nil
}
