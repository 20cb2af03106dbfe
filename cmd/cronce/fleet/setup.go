// Package fleet holds the commands for a whole namespace: setup, auth, doctor, verify
// and "cronce node".
package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

func NewSetupCommand(a *base.App) *cobra.Command {
	var lease, horizon, retention, duplicates base.Duration
	var replicas int
	var queues []string
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Create or change what is stored on the broker",
		Long: `Setup creates the streams and buckets of the namespace, or changes them to what
the flags say, and prints what it did. What no flag names stays as it is stored.

The settings belong to the namespace: every node adopts them when it starts. Nodes
that run keep the ones they started with, so restart them afterwards; stop them
before you shorten a lease or a retention.

With -o json it prints a line for each change:

  {"change":"created stream cronce_slots (replicas 3)"}`,
		Example: `  cronce setup --server nats://nats.internal:4222 --replicas 3
  cronce setup --queue default --queue reports
  cronce setup --lease 5s`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			want := job.Settings{
				Lease: time.Duration(lease), Horizon: time.Duration(horizon), Retention: time.Duration(retention),
				Duplicates: time.Duration(duplicates), Replicas: replicas,
			}
			if err := want.Validate(); err != nil {
				return base.Usage(err)
			}
			for _, q := range queues {
				if err := codec.ValidateName("queue", q); err != nil {
					return base.Usage(err)
				}
			}
			return a.WithJetStream(cmd.Context(), "setup", base.SetupPatience, func(ctx context.Context, js jetstream.JetStream, _ func()) error {
				return runSetup(ctx, a, js, want, queues)
			})
		},
	}
	f := cmd.Flags()
	f.Var(&lease, "lease", "how long a silent node keeps what it claimed (first: 20s)")
	f.Var(&horizon, "horizon", "how old a slot may be and still run (first: 24h)")
	f.Var(&retention, "retention", "how long an outcome is remembered; an hour more than the horizon at least (first: 7d)")
	f.Var(&duplicates, "duplicates", "the slot stream's duplicate window, at least 2m (first: 2m)")
	f.StringSliceVar(&queues, "queue", nil, "also create this `queue`, for workers whose login may not (see cronce auth); repeatable")
	f.IntVar(&replicas, "replicas", 0, "copies of everything, 1 to 5 (first: 3 on a cluster of three servers or more, else 1)")
	return cmd
}

func runSetup(ctx context.Context, a *base.App, js jetstream.JetStream, want job.Settings, queues []string) error {
	changes, err := kv.Setup(ctx, js, kv.Options{Namespace: a.Namespace, Want: want, Queues: queues, Logger: a.Log})
	// What was done before a failure is done: it is printed too.
	for _, change := range changes {
		if err := printChange(a, change); err != nil {
			return err
		}
	}
	if err == nil && len(changes) == 0 && a.Output == base.OutputText {
		_, err = fmt.Fprintln(a.Stdout, "nothing to change")
	}
	return err
}

func printChange(a *base.App, change string) error {
	if a.Output == base.OutputJSON {
		return a.PrintJSON(struct {
			Change string `json:"change"`
		}{change})
	}
	_, err := fmt.Fprintln(a.Stdout, change)
	return err
}
