package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/codec"
)

func NewNodeCommand(a *base.App) *cobra.Command {
	return base.NewGroup("node", "List the nodes of the fleet", newNodeListCommand(a))
}

func newNodeListCommand(a *base.App) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List the nodes, oldest first",
		Long: `List the nodes: every process that ran "cronce run" or the library within the last hour,
with its state:

  alive    its last heartbeat is not older than its lease
  silent   its last heartbeat is older: its slots may be taken over
  stopped  it shut down
  fenced   another node declared it dead, for good

With --all, the list begins with the nodes that were declared dead earlier, for as long
as events are kept (the ledger's retention, 7 days by default): which, when and by whom.

Silence is measured on the broker's clock: from its timestamp of the node's last
heartbeat to its time now. Only a fence proves that a node may no longer work.

The offset is what the node adds to its own clock to get the broker's time, which all
slots use. Nodes with different time zone data (tzdata) may compute different slots, so
the command warns about that.

A worker with a --priority other than 0 is shown as standby(PRIORITY).

With -o json, one line for each node; absent values are omitted. started is by the node's
own clock; the offset is in milliseconds. A fenced node also has "fenced_by" and
"fenced_at"; if only --all shows it, it has nothing else but node and state:

  {"node":"web1-711-0kq1-x2","state":"alive","started":"2026-11-21T07:00:00Z","heartbeat":"2026-11-21T09:30:02Z",
   "lease":"20s","producer":true,"worker":true,"queues":["default"],"running":1,"clock_offset_ms":0.21,
   "tzdata":"2025c","version":"v1.0.0"}`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.Open(cmd.Context(), "node ls", func(ctx context.Context, r base.Session) error {
				list, err := r.Client().Nodes(ctx, client.NodeFilter{Former: all})
				if err != nil {
					return err
				}
				r.LogUnreadable(list.Unreadable)
				warnOfZones(a, list.Nodes)
				header := "NODE\tSTATE\tSTARTED\tHEARTBEAT\tROLE\tRUNNING\tOFFSET\tTZDATA\tQUEUES"
				return base.PrintRows(a, list.Nodes, "no nodes", header, func(n client.NodeRow) []string { return nodeCells(n, list.Now) })
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list nodes that were declared dead more than an hour ago")
	return cmd
}

// warnOfZones warns if live nodes have different time zone data, and names one node for
// each version.
func warnOfZones(a *base.App, nodes []client.NodeRow) {
	first := map[string]string{}
	for _, n := range nodes {
		if _, known := first[n.Tzdata]; !known && n.State == client.NodeAlive && n.Tzdata != "" {
			first[n.Tzdata] = n.Node
		}
	}
	if len(first) < 2 {
		return
	}
	versions := codec.Map(slices.Sorted(maps.Keys(first)), func(version string) string { return version + " on " + first[version] })
	a.Log.Warn("nodes have different time zone data and may compute different slots; run one version everywhere", "tzdata", strings.Join(versions, ", "))
}

func nodeCells(n client.NodeRow, now time.Time) []string {
	var roles []string
	if n.Producer {
		roles = append(roles, "producer")
	}
	if n.Worker && n.Priority > 0 {
		roles = append(roles, fmt.Sprintf("standby(%d)", n.Priority))
	} else if n.Worker {
		roles = append(roles, "worker")
	}
	if n.Started.IsZero() {
		how := fmt.Sprintf("%s %s by %s", n.State, base.Relative(n.FencedAt, now), n.FencedBy)
		return []string{n.Node, how, "-", "-", "-", "-", "-", "-", "-"}
	}
	return []string{
		n.Node, string(n.State), base.Relative(n.Started.Add(time.Duration(n.ClockOffset*float64(time.Millisecond))), now), base.Relative(n.Heartbeat, now),
		cmp.Or(strings.Join(roles, "+"), "-"), strconv.Itoa(n.Running), signed(n.ClockOffset), cmp.Or(n.Tzdata, "-"), cmp.Or(strings.Join(n.Queues, ","), "-"),
	}
}

// signed formats an offset in milliseconds: "+0ms", "-1m30s".
func signed(ms float64) string {
	if ms < 0 {
		return "-" + base.Span(time.Duration(-ms*float64(time.Millisecond)))
	}
	return "+" + base.Span(time.Duration(ms*float64(time.Millisecond)))
}
