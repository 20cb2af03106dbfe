package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/croncetest"
	"github.com/cronce-io/cronce/job"
)

// exampleT stands for the *testing.T of a test, which an example does not have.
type exampleT struct{ cleanups []func() }

func (t *exampleT) Helper()                           {}
func (t *exampleT) Cleanup(f func())                  { t.cleanups = append([]func(){f}, t.cleanups...) }
func (t *exampleT) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *exampleT) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// example calls f with a client of a fleet that charges orders.
func example(f func(ctx context.Context, c *client.Client) error) {
	t := &exampleT{}
	defer func() {
		for _, f := range t.cleanups {
			f()
		}
	}()
	fleet := croncetest.New(t)
	fleet.Handle(job.Job{Name: "charge", Schedule: job.OnDemand}, func(_ context.Context, run job.Run) error {
		var order struct{ Cents int }
		if err := json.Unmarshal(run.Payload, &order); err != nil || order.Cents == 0 {
			return job.Permanent(errors.New("no amount"))
		}
		run.Progress(1, 2, "orders")
		fmt.Fprintf(run.Output, "charged %d cents", order.Cents)
		return run.SetResult(map[string]int{"cents": order.Cents})
	})
	fleet.Start(1)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := f(ctx, fleet.Client()); err != nil {
		fmt.Println(err)
	}
}

func open(ctx context.Context, nc *nats.Conn) (*client.Client, error) {
	return client.New(ctx, nc, client.WithNamespace("billing"), client.WithOperator("shop@web1"))
}

func ExampleNew() {
	nc, err := nats.Connect("nats://127.0.0.1:4222", nats.MaxReconnects(-1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer nc.Close()
	c, err := open(context.Background(), nc)
	if err != nil {
		fmt.Println(err)
		return
	}
	details, err := c.Job(context.Background(), "charge")
	fmt.Println(details.Job.Schedule, err)
}

func charge(ctx context.Context, c *client.Client) error {
	run, err := c.Trigger(ctx, "charge", client.TriggerOptions{Key: "order-4711", Payload: []byte(`{"cents": 500}`)})
	if err != nil {
		return err
	}
	slot, err := run.Wait(ctx)
	if err != nil {
		return err
	}
	fmt.Println(slot.ID, slot.State, slot.Output)
	return nil
}

func ExampleClient_Trigger() {
	example(charge)
	// Output: charge:@order-4711 succeeded charged 500 cents
}

func chargeAll(ctx context.Context, c *client.Client) error {
	orders := make([]client.TriggerOptions, 1000)
	for i := range orders {
		orders[i] = client.TriggerOptions{Key: fmt.Sprintf("invoice-%d", i), Payload: []byte(`{"cents": 500}`)}
	}
	results, err := c.TriggerMany(ctx, "charge", orders)
	if err != nil {
		return err // the same call again orders what is missing
	}
	last, err := results[len(results)-1].Wait(ctx)
	fmt.Println(len(results), "ordered;", last.ID, last.State)
	return err
}

func ExampleClient_TriggerMany() {
	example(chargeAll)
	// Output: 1000 ordered; charge:@invoice-999 succeeded
}

func retryFailures(ctx context.Context, c *client.Client) error {
	failed := client.SlotFilter{Job: "charge", States: []job.State{job.Failed}, Limit: 20, Newest: true}
	for slot, err := range c.Slots(ctx, failed) {
		if err != nil {
			return err
		}
		fmt.Println(slot.ID, slot.Error)
		if _, err := c.Retry(ctx, slot.ID); err != nil {
			return err
		}
	}
	return nil
}

func ExampleClient_Slots() {
	example(func(ctx context.Context, c *client.Client) error {
		run, err := c.Trigger(ctx, "charge", client.TriggerOptions{Key: "order-12", Payload: []byte(`{}`)})
		if err == nil {
			_, err = run.Wait(ctx)
		}
		if err != nil {
			return err
		}
		return retryFailures(ctx, c)
	})
	// Output: charge:@order-12 no amount
}

func migrate(ctx context.Context, c *client.Client, migration func() error) error {
	if _, err := c.Pause(ctx, "charge"); err != nil {
		return err
	}
	if err := c.Drain(ctx, "charge"); err != nil {
		return err
	}
	if err := migration(); err != nil {
		return err // it stays paused
	}
	resumed, err := c.Resume(ctx, "charge", client.ResumeOptions{})
	fmt.Println("missed", resumed.Missed, "of which run", resumed.Runs)
	return err
}

func ExampleClient_Pause() {
	example(func(ctx context.Context, c *client.Client) error {
		return migrate(ctx, c, func() error { return nil })
	})
	// Output: missed 0 of which run 0
}

func verifyLastDay(ctx context.Context, c *client.Client) error {
	sum, err := c.Verify(ctx, client.VerifyOptions{Repair: true}, func(p client.SlotProblem) error {
		fmt.Println(p.Problem, p.ID, p.Detail, p.Repair)
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Println("all is well:", sum.OK, sum.Outcomes)
	return nil
}

func ExampleClient_Verify() {
	example(func(ctx context.Context, c *client.Client) error {
		run, err := c.Trigger(ctx, "charge", client.TriggerOptions{Key: "order-14", Payload: []byte(`{"cents": 500}`)})
		if err == nil {
			_, err = run.Wait(ctx)
		}
		if err != nil {
			return err
		}
		return verifyLastDay(ctx, c)
	})
	// Output: all is well: true map[succeeded:1]
}

func follow(ctx context.Context, c *client.Client, last *uint64) error {
	for e, err := range c.Events(ctx, client.EventFilter{Kinds: []job.EventKind{job.EventFailed}, After: last}) {
		if err != nil {
			return err
		}
		fmt.Println(e.ID, e.Error)
		*last = e.Sequence // keep it: a later call goes on after it
		return nil
	}
	return nil
}

func ExampleClient_Events() {
	example(func(ctx context.Context, c *client.Client) error {
		var last uint64
		if _, err := c.Trigger(ctx, "charge", client.TriggerOptions{Key: "order-13", Payload: []byte(`{}`)}); err != nil {
			return err
		}
		return follow(ctx, c, &last)
	})
	// Output: charge:@order-13 no amount
}

func show(ctx context.Context, c *client.Client, id string) error {
	for piece, err := range c.Tail(ctx, id) {
		if err != nil {
			return err
		}
		fmt.Print(piece.Output)
		if slot := piece.Outcome; slot != nil {
			fmt.Printf("\n%s %s\n", slot.State, slot.Result)
		}
	}
	return nil
}

func ExampleClient_Tail() {
	example(func(ctx context.Context, c *client.Client) error {
		run, err := c.Trigger(ctx, "charge", client.TriggerOptions{Key: "order-14", Payload: []byte(`{"cents": 700}`)})
		if err != nil {
			return err
		}
		return show(ctx, c, run.ID())
	})
	// Output:
	// charged 700 cents
	// succeeded {"cents":700}
}

func ExampleClient_Apply() {
	example(func(ctx context.Context, c *client.Client) error {
		jobs := []job.Job{{Name: "report", Schedule: "0 7 * * MON-FRI", Timezone: "Europe/Berlin"}}
		for range 2 { // the second time nothing changes
			done, err := c.Apply(ctx, jobs, client.ApplyOptions{})
			if err != nil {
				return err
			}
			for _, one := range done {
				fmt.Println(one.Job, one.Action)
			}
		}
		return nil
	})
	// Output:
	// report create
	// report keep
}

func ExampleClient_Backfill() {
	example(func(ctx context.Context, c *client.Client) error {
		if _, err := c.Apply(ctx, []job.Job{{Name: "report", Schedule: "@hourly"}}, client.ApplyOptions{}); err != nil {
			return err
		}
		next, err := c.Next(ctx, "report")
		if err != nil {
			return err
		}
		lastDay := client.BackfillOptions{From: next.Now.AddDate(0, 0, -1), To: next.Now, Clip: true}
		done, err := c.Backfill(ctx, "report", lastDay, nil)
		fmt.Println(done.Slots, "slots,", done.Published, "of them published now") // a new job has no past slots
		return err
	})
	// Output: 0 slots, 0 of them published now
}

func ExampleClient_Explain() {
	example(func(ctx context.Context, c *client.Client) error {
		run, err := c.Trigger(ctx, "charge", client.TriggerOptions{Key: "order-16", Payload: []byte(`{}`)})
		if err == nil {
			_, err = run.Wait(ctx)
		}
		if err != nil {
			return err
		}
		story, err := c.Explain(ctx, run.ID())
		fmt.Println(story.State, "-", story.Why)
		return err
	})
	// Output: failed - It ended failed: no amount.
}

func ExampleClient_Nodes() {
	example(func(ctx context.Context, c *client.Client) error {
		list, err := c.Nodes(ctx, client.NodeFilter{})
		for _, n := range list.Nodes {
			fmt.Println(n.State, n.Worker, n.Queues)
		}
		return err
	})
	// Output: alive true [default]
}
