package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/cmd/cronce/files"
	"github.com/cronce-io/cronce/cmd/cronce/fleet"
	"github.com/cronce-io/cronce/cmd/cronce/jobs"
	"github.com/cronce-io/cronce/cmd/cronce/serve"
	"github.com/cronce-io/cronce/cmd/cronce/slots"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
)

// execute runs one command line and returns its exit status.
func execute(ctx context.Context, a *base.App, args []string) int {
	return base.Execute(ctx, a, newRootCommand(a), args)
}

const rootLong = `Cronce runs scheduled jobs on any number of machines, without a leader. Every process
computes every slot (a job and its planned instant), and NATS JetStream folds the
copies, so each slot runs once and has one recorded outcome.

Start the same command in three terminals to get a fleet of three:

  cronce run -f jobs.yaml

With no --server, no NATS_URL and no selected NATS context it joins the server on
127.0.0.1:4222, or embeds one there.

Torture, benchmarks and the conformance kit are commands of another program, cronce-lab:
in a clone of the repository, go install -C lab ./cmd/cronce-lab

Exit status: 0 done, 1 failed (the server or the environment), 2 wrong usage or
configuration, 3 a check found something, 130 after a second TERM or
Ctrl-C, or after the first if the command waited for an outcome.`

func newRootCommand(a *base.App) *cobra.Command {
	root := base.NewRoot(a, "cronce", "Run every slot of every job once, without a leader", rootLong)
	root.AddCommand(
		fleet.NewAuthCommand(a),
		files.NewCheckCommand(a),
		fleet.NewDoctorCommand(a),
		files.NewImportCommand(a),
		jobs.NewCommand(a),
		jobs.NewNextCommand(a),
		fleet.NewNodeCommand(a),
		serve.NewRunCommand(a),
		serve.NewServerCommand(a),
		fleet.NewSetupCommand(a),
		slots.NewCommand(a),
		serve.NewUICommand(a),
		fleet.NewVerifyCommand(a),
		newVersionCommand(a),
		slots.NewWatchCommand(a),
		base.NewPlural("jobs", jobs.NewCommand, a),
		base.NewPlural("list", jobs.NewCommand, a),
		base.NewPlural("slots", slots.NewCommand, a),
		base.NewPlural("nodes", fleet.NewNodeCommand, a),
	)
	base.GuardLists(root)
	return root
}

// versions is what a bug report should contain.
type versions struct {
	Cronce   string `json:"cronce"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	Server   string `json:"nats_server"`
	Client   string `json:"nats_client"`
	Tzdata   string `json:"tzdata"`
	Platform string `json:"platform"`
}

func newVersionCommand(a *base.App) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of its parts",
		Long: `Version prints the versions of cronce, of the protocol that it speaks on the broker
(docs/protocol.md), of Go, of the embedded nats-server, of the NATS client library and
of the time zone data. It needs no server. "cronce node ls" shows the versions of a
running fleet.

With -o json, one line:

  {"cronce":"v1.0.0","protocol":1,"go":"go1.26.8","nats_server":"2.15.2","nats_client":"1.55.0","tzdata":"2025c",
   "platform":"linux/amd64"}`,
		Example: "  cronce version\n  cronce version -o json | jq .protocol",
		Args:    base.Arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			v := versions{
				base.Version(), codec.Version, runtime.Version(), server.VERSION, nats.Version, tzdata.Version,
				runtime.GOOS + "/" + runtime.GOARCH,
			}
			if a.Output == base.OutputJSON {
				return a.PrintJSON(v)
			}
			w := base.NewTable(a.Stdout)
			fmt.Fprintf(w, "cronce\t%s\nprotocol\t%d\ngo\t%s\nnats-server\t%s\nnats.go\t%s\ntzdata\t%s\nplatform\t%s\n",
				v.Cronce, v.Protocol, v.Go, v.Server, v.Client, v.Tzdata, v.Platform)
			return w.Flush()
		},
	}
}
