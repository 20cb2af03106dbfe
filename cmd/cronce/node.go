package main

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

	"github.com/cronce-io/cronce/job"
)

func newNodeCommand(a *app) *cobra.Command {
	return newGroup("node", "The processes of the fleet", newNodeListCommand(a))
}

func newNodeListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the nodes, the one that started first on top",
		Long: `List the nodes: every process that ran "cronce run", or the library, within the
last hour, and what it is:

  alive    it has been heard of within its lease
  silent   it has not: its slots may be taken over
  stopped  it ended by itself
  fenced   another node declared it dead, for good

Silence is measured on the broker's clock: from its timestamp of the node's last
heartbeat to its time now. Only the fence is proof that a node is out.

The clock's offset is what the node has to add to its own clock to have the
broker's, by which all slots go. Nodes whose time zone data (tzdata) differ may
compute different slots: that is warned about.

A worker of another --priority than 0 is shown as standby(PRIORITY).

With -o json, a line for each; what is absent is omitted, the offset is in
milliseconds, and a fenced node has "fenced_by" and "fenced_at" too:

  {"node":"web1-711-0kq1-x2","state":"alive","started":"2026-11-21T07:00:00Z","heartbeat":"2026-11-21T09:30:02Z",
   "lease":"20s","producer":true,"worker":true,"queues":["default"],"running":1,"clock_offset_ms":0.21,
   "tzdata":"2025c","version":"v1.0.0"}`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.read(cmd.Context(), "node ls", func(ctx context.Context, r reader) error {
				nodes, now, err := r.nodes(ctx)
				if err != nil {
					return err
				}
				a.warnOfZones(nodes)
				header := "NODE\tSTATE\tSTARTED\tHEARTBEAT\tROLE\tRUNNING\tOFFSET\tTZDATA\tQUEUES"
				return printRows(a, nodes, "no nodes", header, func(n nodeRow) []string { return n.cells(now) })
			})
		},
	}
}

// nodeSilent is what a node is that has not been heard of for a lease. It is
// nobody's record, only what an observer sees.
const nodeSilent job.NodeState = "silent"

type nodeRow struct {
	Node        string        `json:"node"`
	State       job.NodeState `json:"state"`
	Started     time.Time     `json:"started,omitzero"`
	Heartbeat   time.Time     `json:"heartbeat,omitzero"`
	Lease       string        `json:"lease,omitempty"`
	Producer    bool          `json:"producer"`
	Worker      bool          `json:"worker"`
	Queues      []string      `json:"queues,omitempty"`
	Priority    int           `json:"priority,omitempty"`
	Running     int           `json:"running"`
	ClockOffset float64       `json:"clock_offset_ms"`
	Tzdata      string        `json:"tzdata,omitempty"`
	Version     string        `json:"version,omitempty"`
	FencedBy    string        `json:"fenced_by,omitempty"`
	FencedAt    time.Time     `json:"fenced_at,omitzero"`
}

// warnOfZones tells when nodes that are alive have different time zone data, with
// one node for each.
func (a *app) warnOfZones(nodes []nodeRow) {
	first := map[string]string{}
	for _, n := range nodes {
		if _, known := first[n.Tzdata]; !known && n.State == job.NodeAlive && n.Tzdata != "" {
			first[n.Tzdata] = n.Node
		}
	}
	if len(first) < 2 {
		return
	}
	var args []any
	for _, release := range slices.Sorted(maps.Keys(first)) {
		args = append(args, release, first[release])
	}
	a.log.Warn("nodes have different time zone data and may compute different slots; run one version everywhere", args...)
}

// nodes lists the nodes as of the broker's time now.
func (r reader) nodes(ctx context.Context) (rows []nodeRow, now time.Time, err error) {
	events, err := r.Nodes().List(ctx)
	if err != nil {
		return nil, now, err
	}
	r.alive()
	if now, err = r.Time(ctx); err != nil {
		return nil, now, err
	}
	for _, ev := range events {
		if ev.Err == nil {
			rows = append(rows, newNodeRow(ev.Node, ev.Time, now))
		} else if !r.unreadable(ev.Err) {
			return nil, now, ev.Err
		}
	}
	slices.SortFunc(rows, func(x, y nodeRow) int {
		return cmp.Or(x.Started.Compare(y.Started), strings.Compare(x.Node, y.Node))
	})
	return rows, now, nil
}

func newNodeRow(n job.Node, heartbeat, now time.Time) nodeRow {
	state := n.State
	if state == job.NodeAlive && now.Sub(heartbeat) > n.Lease {
		state = nodeSilent
	}
	return nodeRow{
		Node: n.Name, State: state, Started: n.Started.UTC(), Heartbeat: heartbeat.UTC(), Lease: n.Lease.String(),
		Producer: n.Producer, Worker: n.Worker, Queues: n.Queues, Priority: n.Priority, Running: n.Running,
		ClockOffset: float64(n.ClockOffset.Microseconds()) / 1000, Tzdata: n.Tzdata, Version: n.Version,
		FencedBy: n.FencedBy, FencedAt: n.FencedAt,
	}
}

func (n nodeRow) cells(now time.Time) []string {
	var roles []string
	if n.Producer {
		roles = append(roles, "producer")
	}
	if n.Worker && n.Priority > 0 {
		roles = append(roles, fmt.Sprintf("standby(%d)", n.Priority))
	} else if n.Worker {
		roles = append(roles, "worker")
	}
	return []string{
		n.Node, string(n.State), relative(n.Started.Sub(now)), relative(n.Heartbeat.Sub(now)),
		dash(strings.Join(roles, "+")), strconv.Itoa(n.Running), signed(n.ClockOffset), dash(n.Tzdata), dash(strings.Join(n.Queues, ",")),
	}
}

// signed words an offset in milliseconds: "+0ms", "-1m30s".
func signed(ms float64) string {
	if ms < 0 {
		return "-" + span(time.Duration(-ms*float64(time.Millisecond)))
	}
	return "+" + span(time.Duration(ms*float64(time.Millisecond)))
}
