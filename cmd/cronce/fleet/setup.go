// Package fleet holds the commands for a whole namespace: setup, auth, doctor, verify
// and "cronce node".
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/broker/space"
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
		Short: "Create or change the streams, buckets and settings of a namespace",
		Long: `Setup creates the streams and buckets of the namespace, or changes them to match the
flags, and prints each change. Settings without a flag stay as they are.

The settings belong to the namespace: every node adopts them when it starts. Running
nodes keep the settings that they started with, so restart the nodes afterwards. Before
you shorten a lease or a retention, stop them.

With -o json it prints one line for each change:

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
			if err := cmp.Or(want.Validate(), codec.ValidateName("queue", queues...)); err != nil {
				return base.Usage(err)
			}
			return a.WithJetStream(cmd.Context(), "setup", base.SetupPatience, func(ctx context.Context, js jetstream.JetStream, _ func()) error {
				return runSetup(ctx, a, js, want, queues)
			})
		},
	}
	f := cmd.Flags()
	f.Var(&lease, "lease", "how long a silent node keeps its claims (initially 20s)")
	f.Var(&horizon, "horizon", "how old a slot may be and still run (initially 24h)")
	f.Var(&retention, "retention", "how long records are kept; at least an hour more than the horizon (initially 7d)")
	f.Var(&duplicates, "duplicates", "the slot stream's duplicate window, at least 2m (initially 2m)")
	f.StringSliceVar(&queues, "queue", nil, "also create this `queue`, for workers that may not create it (see cronce auth); repeatable")
	f.IntVar(&replicas, "replicas", 0, "replicas of every stream and bucket, 1 to 5 (initially 3 on a cluster of three or more, else 1)")
	return cmd
}

func runSetup(ctx context.Context, a *base.App, js jetstream.JetStream, want job.Settings, queues []string) error {
	changes, err := space.Setup(ctx, js, kv.Options{Namespace: a.Namespace, Want: want, Queues: queues, Logger: a.Log})
	// Also print the changes that were made before a failure.
	for _, change := range changes {
		row := struct {
			Change string `json:"change"`
		}{change}
		if err := a.Print(row, "%s\n", change); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(changes, func(c string) bool { return strings.HasPrefix(c, "changed the settings") }) {
		a.Log.Warn("a node that runs keeps the settings that it started with: restart the nodes; cronce doctor names those with other settings")
	}
	if err == nil && len(changes) == 0 && a.Output == base.OutputText {
		_, err = fmt.Fprintln(a.Stdout, "nothing to change")
	}
	return err
}
