//go:build unix

package peer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
	"github.com/cronce-io/cronce/internal/fleet/replica"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// asClient is the environment variable with which this test program is a client under test.
const asClient = "CRONCE_TEST_PEER_CLIENT"

func under(name string) string { return os.Getenv("CRONCE_UNDER_TEST_" + name) }

// TestClientOfThePeer is not a test: it is a node of the Go code, as the peer starts any client.
func TestClientOfThePeer(t *testing.T) {
	if os.Getenv(asClient) == "" {
		t.Skip("only TestGoPassesThePeer runs this")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := runClient(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runClient(ctx context.Context) error {
	nc, err := nats.Connect(under("SERVER"), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	store, err := kv.Open(ctx, js, kv.Options{Namespace: under("NAMESPACE"), Logger: log})
	if err != nil {
		return err
	}
	offset, err := strconv.Atoi(under("CLOCK_OFFSET_MS"))
	if err != nil {
		return err
	}
	for _, name := range []string{"TRIGGER", "TRIGGER_LATER", "TRIGGER_LARGE"} {
		id, text, _ := strings.Cut(under(name), " ")
		if id == "" {
			continue
		}
		var o client.TriggerOptions
		switch name {
		case "TRIGGER_LATER":
			if o.At, err = time.Parse(time.RFC3339, text); err != nil {
				return err
			}
		case "TRIGGER_LARGE":
			size, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			o.Payload = fmt.Appendf(nil, `{"pad":%q}`, strings.Repeat("x", size-len(`{"pad":""}`)))
		}
		go func() {
			if err := triggers(ctx, client.Attach(attach.Of(nc, store, attach.Options{Operator: "client"})), id, o); err != nil {
				log.Error("trigger", "error", err)
			}
		}()
	}
	names := strings.FieldsFunc(under("JOBS"), func(r rune) bool { return r == ',' })
	return replica.New(replica.Config{
		Store: store, Produce: under("PRODUCE") == "1", Queues: strings.Split(under("QUEUES"), ","), Grace: 2 * time.Second,
		Host: under("NAME"), ClockShift: time.Duration(offset) * time.Millisecond, Owner: "code", Logger: log, Version: "test",
		Handlers: func() []string { return names },
		Handler: func(name string) job.Handler {
			if !slices.Contains(names, name) {
				return nil
			}
			return work
		},
	}).Run(ctx)
}

// triggers has a run start, waits for its outcome, and records both.
func triggers(ctx context.Context, c *client.Client, id string, o client.TriggerOptions) error {
	slot, err := job.ParseSlotID(id)
	if err != nil {
		return err
	}
	if err := record(job.Run{Slot: slot}, "trigger", ""); err != nil {
		return err
	}
	o.Key = slot.Token
	if _, err := c.Trigger(ctx, slot.Job, o); errors.Is(err, job.ErrInvalid) {
		return errors.Join(err, record(job.Run{Slot: slot}, "outcome", "refused"))
	} else if err != nil {
		return err
	}
	d, err := c.Wait(ctx, id)
	if err != nil {
		return err
	}
	return record(job.Run{Slot: slot}, "outcome", string(d.State))
}

// work does what the payload says, and records it.
func work(ctx context.Context, run job.Run) error {
	var ask struct {
		MS    int
		Deaf  bool
		Until string
	}
	if len(run.Payload) > 0 {
		if err := json.Unmarshal(run.Payload, &ask); err != nil {
			return err
		}
	}
	if err := record(run, "start", ""); err != nil {
		return err
	}
	var err error
	over := after(time.Duration(ask.MS)*time.Millisecond, ask.Until)
	select {
	case <-over:
	case <-ctx.Done():
		err = errors.Join(context.Cause(ctx), record(run, "cancel", ""))
		if ask.Deaf {
			<-over
		}
	}
	return errors.Join(err, record(run, "end", ""))
}

// after returns a channel that is closed when the time is over, or when the peer closes the
// connection to the address, unless that is empty.
func after(d time.Duration, address string) <-chan struct{} {
	over := make(chan struct{})
	if address == "" {
		time.AfterFunc(d, func() { close(over) })
		return over
	}
	go func() {
		defer close(over)
		conn, err := net.DialTimeout("tcp", address, d)
		if err != nil {
			return // the peer no longer listens
		}
		defer conn.Close()
		if conn.SetReadDeadline(time.Now().Add(d)) == nil {
			_, _ = conn.Read(make([]byte, 1)) // the peer sends nothing
		}
	}()
	return over
}

func record(run job.Run, what, result string) error {
	f, err := os.OpenFile(under("RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "{\"what\":%q,\"slot\":%q,\"attempt\":%d,\"fence\":%d,\"result\":%q}\n", what, run.Slot.ID(), run.Attempt, run.Fence, result)
	return err
}
