package main

import (
	"fmt"
	"runtime"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
)

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
