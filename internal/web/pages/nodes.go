package pages

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
)

// fleet is what the page of the nodes shows.
type fleet struct {
	Now   time.Time
	Alive []nodeView // alive and silent ones
	Ended []nodeView // stopped and fenced ones, the latest first

	// Queues has the live workers of each queue.
	Queues []queueView

	// Zones and Versions are those of the live nodes. If there are several, the nodes differ.
	Zones, Versions []string
	Unreadable      []error
}

type nodeView struct {
	client.NodeRow
	LeaseTime time.Duration
	Uptime    time.Duration

	// Trusted is how long the node would still own its claims if the broker went away now.
	Trusted time.Duration
}

// queueView is a queue with its workers, by priority.
type queueView struct {
	Name  string
	Ranks []rank
}

// rank has the workers of one priority. Those of all ranks but the first stand by.
type rank struct {
	Priority int
	Nodes    []string
}

func (s *Site) nodes() shell.Page {
	return shell.Page{Path: "/nodes", Nav: "nodes", File: "nodes.html", Show: func(r *shell.Request) (any, error) {
		former := r.Form.One("former", "", "true") == "true"
		list, err := r.Client.Nodes(r.Context(), client.NodeFilter{Former: former})
		if err != nil {
			return nil, err
		}
		return newFleet(list), nil
	}}
}

func newFleet(list client.NodeList) fleet {
	f := fleet{Now: list.Now, Unreadable: list.Unreadable}
	queues := map[string]map[int][]string{}
	for _, n := range list.Nodes {
		v := nodeView{NodeRow: n}
		v.LeaseTime, _ = time.ParseDuration(n.Lease) // it was written by time.Duration
		if n.State != client.NodeAlive && n.State != client.NodeSilent {
			f.Ended = append(f.Ended, v)
			continue
		}
		v.Uptime = list.Now.Sub(n.Started)
		v.Trusted = max(0, v.LeaseTime-list.Now.Sub(n.Heartbeat))
		f.Alive = append(f.Alive, v)
		f.Zones, f.Versions = append(f.Zones, n.Tzdata), append(f.Versions, n.Version)
		if !n.Worker || n.State != client.NodeAlive {
			continue
		}
		for _, q := range n.Queues {
			if queues[q] == nil {
				queues[q] = map[int][]string{}
			}
			queues[q][n.Priority] = append(queues[q][n.Priority], n.Node)
		}
	}
	f.Zones, f.Versions = distinct(f.Zones), distinct(f.Versions)
	slices.SortStableFunc(f.Ended, func(x, y nodeView) int { return y.last().Compare(x.last()) })
	for name, ranks := range queues {
		q := queueView{Name: name}
		for priority, nodes := range ranks {
			q.Ranks = append(q.Ranks, rank{priority, nodes})
		}
		slices.SortFunc(q.Ranks, func(x, y rank) int { return cmp.Compare(x.Priority, y.Priority) })
		f.Queues = append(f.Queues, q)
	}
	slices.SortFunc(f.Queues, func(x, y queueView) int { return strings.Compare(x.Name, y.Name) })
	return f
}

// last returns when the node was declared dead, or else its last heartbeat.
func (n nodeView) last() time.Time {
	if n.FencedAt.After(n.Heartbeat) {
		return n.FencedAt
	}
	return n.Heartbeat
}

func distinct(list []string) []string {
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
}
