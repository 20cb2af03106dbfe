package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/torture"
	"github.com/cronce-io/cronce/internal/natsconn/embed"
)

// newTortureNodeCommand returns the command of one process of the torture fleet.
func newTortureNodeCommand(a *base.App) *cobra.Command {
	return newChildCommand(a, torture.NodeRole, func(ctx context.Context, spec torture.NodeSpec) error {
		a.Server, a.Context, a.Login.Creds = spec.Server, spec.Context, spec.Creds
		return torture.RunNode(ctx, spec, func(ctx context.Context, d nats.CustomDialer) (*nats.Conn, error) {
			return connectThrough(ctx, a, spec.Process, d)
		}, a.Log)
	})
}

// newTortureServerCommand returns the command of one server that torture starts.
func newTortureServerCommand(a *base.App) *cobra.Command {
	return newChildCommand(a, torture.ServerRole, func(ctx context.Context, spec torture.ServerSpec) error {
		cfg := embed.Config{Listen: spec.Listen, Store: spec.Store, MaxPayload: spec.MaxPayload, Logger: a.Log}
		if spec.Route != "" {
			cfg.Peer = &embed.Peer{Name: spec.Name, Listen: spec.Route, Routes: spec.Routes}
		}
		srv, err := embed.Start(ctx, cfg)
		if err != nil {
			return err
		}
		<-ctx.Done()
		return srv.Close()
	})
}

// newChildCommand returns the command of a process that cronce torture starts. The first line of
// stdin is its specification. The process exits when stdin ends, because its parent is then gone.
func newChildCommand[Spec any](a *base.App, role string, run func(context.Context, Spec) error) *cobra.Command {
	return &cobra.Command{
		Use: role, Hidden: true, Args: base.Arguments(cobra.NoArgs),
		Short: "Be a " + role + " of cronce torture, which starts it",
		Long:  "Cronce torture starts this process and writes its specification to stdin.",
		RunE: base.Endless(func(cmd *cobra.Command, _ []string) error {
			in := bufio.NewReader(a.Stdin)
			line, err := in.ReadBytes('\n')
			var spec Spec
			if err == nil {
				err = json.Unmarshal(line, &spec)
			}
			if err != nil {
				return base.Usage(fmt.Errorf("only cronce torture starts this command: %w", err))
			}
			go func() {
				_, _ = io.Copy(io.Discard, in)
				os.Exit(base.ExitFailed)
			}()
			return run(cmd.Context(), spec)
		}),
	}
}
