package slots

import (
	"context"
	"errors"
	"fmt"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/job"
)

// runOrders prints the orders that the broker keeps, oldest first, and then those that are
// given, until ctx ends.
func runOrders(ctx context.Context, a *base.App, f watchFlags) error {
	nc, leave, err := a.Connect(ctx, "watch", false)
	if err != nil {
		return err
	}
	defer leave()
	opening, cancel := context.WithTimeout(ctx, base.ReadPatience)
	defer cancel()
	options := []client.Option{client.WithNamespace(a.Namespace)}
	if a.Domain != "" {
		options = append(options, client.WithDomain(a.Domain))
	}
	c, err := client.New(opening, nc.Conn, options...)
	if err != nil {
		return err
	}
	var first uint64
	for e, err := range c.Events(ctx, client.EventFilter{Job: f.job, Kinds: []job.EventKind{job.EventOrdered}, After: &first}) {
		switch {
		case errors.Is(err, job.ErrInvalid) || errors.Is(err, job.ErrVersion):
			a.Log.Warn("skipped an unreadable event", "error", err)
			continue
		case err != nil:
			return err
		}
		if a.Output == base.OutputJSON {
			err = a.PrintJSON(e)
		} else {
			_, err = fmt.Fprintln(a.Stdout, eventLine(e.Event))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
