package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/check/doctor"
	"github.com/cronce-io/cronce/internal/check/verify"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// NodeState is what is known of a node.
type NodeState string

const (
	NodeAlive   = NodeState(exchange.NodeAlive)   // its last heartbeat is not older than its lease
	NodeStopped = NodeState(exchange.NodeStopped) // it shut down
	NodeFenced  = NodeState(exchange.NodeFenced)  // another node declared it dead, for good

	// NodeSilent is a node that has sent no heartbeat for its lease, and that no node has
	// declared dead so far.
	NodeSilent NodeState = "silent"
)

// NodeRow is a row of the listing of nodes.
type NodeRow struct {
	// Node is the name of the node.
	Node  string    `json:"node"`
	State NodeState `json:"state"`

	// Started is when the node started, by its own clock. Heartbeat is when the broker stored its
	// last heartbeat. Lease is how long the node may be silent before it is declared dead, like
	// "20s".
	Started   time.Time `json:"started,omitzero"`
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	Lease     string    `json:"lease,omitempty"`

	// Producer and Worker report whether the node publishes slots and whether it runs them.
	// Queues and Priority are those of the worker.
	Producer bool     `json:"producer"`
	Worker   bool     `json:"worker"`
	Queues   []string `json:"queues,omitempty"`
	Priority int      `json:"priority,omitempty"`

	// Running is the number of handlers that run.
	Running int `json:"running"`

	// ClockOffset is the broker's clock minus the node's, in milliseconds.
	ClockOffset float64 `json:"clock_offset_ms"`

	// Tzdata is the release of the node's time zone data, like "2025c". Version is that of its
	// program.
	Tzdata  string `json:"tzdata,omitempty"`
	Version string `json:"version,omitempty"`

	// FencedBy is the node that declared this one dead, at FencedAt.
	FencedBy string    `json:"fenced_by,omitempty"`
	FencedAt time.Time `json:"fenced_at,omitzero"`

	former bool // see NodeFilter
}

// Cursor returns the row's position: nodes are ordered by their start. Former nodes, whose start is
// not known, come first, ordered by when they were declared dead.
func (n NodeRow) Cursor() Cursor {
	if n.former {
		return timeCursor(n.Started, string(timeCursor(n.FencedAt, n.Node)))
	}
	return timeCursor(n.Started, n.Node)
}

// MarshalJSON leaves out the fields that are not known of a former node.
func (n NodeRow) MarshalJSON() ([]byte, error) {
	if n.former {
		return json.Marshal(struct {
			Node     string    `json:"node"`
			State    NodeState `json:"state"`
			FencedBy string    `json:"fenced_by"`
			FencedAt time.Time `json:"fenced_at"`
		}{n.Node, n.State, n.FencedBy, n.FencedAt})
	}
	type plain NodeRow
	return json.Marshal(plain(n))
}

// NodeList is a listing of nodes.
type NodeList struct {
	Nodes []NodeRow

	// Now is the broker's time at which the states were computed.
	Now time.Time

	// Unreadable are the errors of values that were left out.
	Unreadable []error
}

// NodeFilter selects nodes. Its zero value selects all that are stored.
type NodeFilter struct {
	// After selects the nodes after this cursor. Empty: from the beginning.
	After Cursor

	// Former adds the nodes that were declared dead and whose records the nodes bucket has
	// deleted, which it does after an hour or more. They come first in the list. Their rows are
	// made from events, which are kept for the ledger's retention and contain only the node's
	// name, which node declared it dead, and when.
	Former bool
}

// Nodes lists the nodes in the order of their starts, oldest first.
func (c *Client) Nodes(ctx context.Context, f NodeFilter) (NodeList, error) {
	var list NodeList
	if err := f.After.checkTime(); err != nil {
		return list, err
	}
	events, err := c.cfg.Nodes.List(ctx)
	if err != nil {
		return list, err
	}
	c.cfg.Alive()
	if list.Now, err = c.cfg.Now(ctx); err != nil {
		return list, err
	}
	for _, ev := range events {
		switch {
		case ev.Err == nil:
			list.Nodes = append(list.Nodes, listedNode(ev.Node, ev.Time, list.Now))
		case exchange.IsUnreadable(ev.Err):
			list.Unreadable = append(list.Unreadable, ev.Err)
		default:
			return list, ev.Err
		}
	}
	slices.SortFunc(list.Nodes, func(x, y NodeRow) int {
		return cmp.Or(x.Started.Compare(y.Started), strings.Compare(x.Node, y.Node))
	})
	if f.Former {
		former, err := c.formerNodes(ctx, list)
		if err != nil {
			return list, err
		}
		list.Nodes = append(former, list.Nodes...)
	}
	list.Nodes = after(list.Nodes, f.After) // not earlier: formerNodes would take a stored node for a former one
	return list, nil
}

// formerNodes lists nodes that were declared dead and are not in listed, ordered by when they
// were declared dead.
func (c *Client) formerNodes(ctx context.Context, listed NodeList) ([]NodeRow, error) {
	known := map[string]bool{}
	for _, n := range listed.Nodes {
		known[n.Node] = true
	}
	var former []NodeRow
	for e, err := range readable(c, c.cfg.Fleet.Events(ctx, kv.EventFilter{Job: exchange.NoJob}), nil) {
		if err != nil {
			return nil, err
		}
		if e.Kind == job.EventFenced && e.Peer != "" && !known[e.Peer] {
			known[e.Peer] = true
			former = append(former, NodeRow{Node: e.Peer, State: NodeFenced, FencedBy: e.Node, FencedAt: e.Time.UTC(), former: true})
		}
	}
	slices.SortFunc(former, func(x, y NodeRow) int {
		return cmp.Or(x.FencedAt.Compare(y.FencedAt), strings.Compare(x.Node, y.Node))
	})
	return former, nil
}

func listedNode(n exchange.Node, heartbeat, now time.Time) NodeRow {
	state := NodeState(n.State)
	if state == NodeAlive && now.Sub(heartbeat) > n.Lease {
		state = NodeSilent
	}
	return NodeRow{
		Node: n.Name, State: state, Started: n.Started.UTC(), Heartbeat: heartbeat.UTC(), Lease: n.Lease.String(),
		Producer: n.Producer, Worker: n.Worker, Queues: n.Queues, Priority: n.Priority, Running: n.Running,
		ClockOffset: milliseconds(n.ClockOffset), Tzdata: n.Tzdata, Version: n.Version,
		FencedBy: n.FencedBy, FencedAt: n.FencedAt,
	}
}

// FindingLevel is how bad a finding is.
type FindingLevel string

const (
	FindingError   = FindingLevel(doctor.Error)   // something does not work, or data is lost, now
	FindingWarning = FindingLevel(doctor.Warning) // a risk: it does harm later, or when something else fails
	FindingNote    = FindingLevel(doctor.Note)    // useful to know
)

// Finding is one thing that Doctor found. Its JSON is the line of "cronce doctor".
type Finding struct {
	// Check names the check in one word that programs may rely on.
	Check string       `json:"check"`
	Level FindingLevel `json:"level"`

	// About is the subject, like "queue mail". What describes what was seen, Why the consequence,
	// and Mend the command or action that fixes it. All but What may be empty.
	About string `json:"about,omitempty"`
	What  string `json:"what"`
	Why   string `json:"why,omitempty"`
	Mend  string `json:"mend,omitempty"`
}

// Diagnosis is the result of Doctor.
type Diagnosis struct {
	// Findings are the findings, the worst first. OK reports that there is no error and no
	// warning among them.
	Findings []Finding
	OK       bool

	// Server and Version are the name and the version of the NATS server that answered.
	Server, Version string
}

// DoctorOptions change what Doctor inspects.
type DoctorOptions struct {
	// Monitors are the URLs of the servers' monitoring ports, like "http://n1:8222". Only a
	// monitoring port shows whether a server syncs its writes.
	Monitors []string
}

// Doctor inspects the broker, the stored data and the fleet, and changes nothing. It reads
// all records, and takes a few seconds if a queue seems to have no worker. For the outcomes
// of single slots, use [Client.Verify].
func (c *Client) Doctor(ctx context.Context, o DoctorOptions) (Diagnosis, error) {
	if c.cfg.Store == nil {
		return Diagnosis{}, errors.New("doctor: this client has no store")
	}
	_, facts, err := doctor.Gather(ctx, doctor.Sources{
		Store: c.cfg.Store, Monitors: o.Monitors, Alive: c.cfg.Alive,
	})
	if err != nil {
		return Diagnosis{}, err
	}
	found := doctor.Check(facts)
	d := Diagnosis{OK: !doctor.Counts(found), Server: facts.Survey.Server, Version: facts.Survey.Version}
	for _, f := range found {
		d.Findings = append(d.Findings, Finding{f.Check, FindingLevel(f.Level), f.About, f.What, f.Why, f.Mend})
	}
	return d, nil
}

// ProblemKind is a kind of problem that Verify finds.
type ProblemKind string

const (
	ProblemMissing   = ProblemKind(verify.Missing)   // no record, no message, and no range of missed slots covers it
	ProblemNoOutcome = ProblemKind(verify.NoOutcome) // it cannot proceed, or should have proceeded more than 2 min ago
	ProblemDoubled   = ProblemKind(verify.Doubled)   // it ended more than once
	ProblemEarly     = ProblemKind(verify.Early)     // it started before it was due
)

// Repair is the result of repairing a slot.
type Repair string

const (
	RepairOffered        Repair = "offered"         // the slot was published again
	RepairAlreadyOffered Repair = "already_offered" // another program has just published it again
)

// SlotProblem is a slot that has a problem. Its JSON is a line of "cronce verify".
type SlotProblem struct {
	Problem ProblemKind `json:"problem"`
	ID      string      `json:"id"`
	Job     string      `json:"job"`

	// Slot is the slot's instant, zero if it was triggered. Due is zero if it is not known.
	Slot time.Time `json:"slot,omitzero"`
	Due  time.Time `json:"due,omitzero"`

	// State is the state of the record, or job.Pending if there is only a message. Empty: there is
	// neither, or it does not matter. Node owns the slot, or owned it last.
	State job.State `json:"state,omitempty"`
	Node  string    `json:"node,omitempty"`

	// Detail says what was seen.
	Detail string `json:"detail"`

	// Repair is empty without VerifyOptions.Repair, and if the slot was not repaired. BeyondRepair
	// is why the slot cannot be repaired. Empty: it can be.
	Repair       Repair `json:"repair,omitempty"`
	BeyondRepair string `json:"beyond_repair,omitempty"`
}

// Verification is the summary of Verify. Its JSON is the last line of "cronce verify".
type Verification struct {
	// OK reports that there is no problem.
	OK   bool      `json:"ok"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`

	// Jobs counts the jobs that were judged, and Slots the slots of these jobs that should exist.
	Jobs  int `json:"jobs"`
	Slots int `json:"slots"`

	// Outcomes counts the slots that have an outcome, and InProgress those that wait, run or will
	// be retried, without a problem. Beside counts the slots among these that no schedule contains:
	// they were triggered or backfilled, or their job was deleted.
	Outcomes   map[job.State]int `json:"outcomes"`
	InProgress int               `json:"in_progress"`
	Beside     int               `json:"beside"`

	// The problems by kind.
	Missing   int `json:"missing"`
	NoOutcome int `json:"no_outcome"`
	Doubled   int `json:"doubled"`
	Early     int `json:"early"`

	// Offered counts the problems with a SlotProblem.Repair, BeyondRepair those that cannot be repaired.
	Offered      int `json:"offered"`
	BeyondRepair int `json:"beyond_repair"`

	Late      Lateness    `json:"late_ms"`
	NotJudged []NotJudged `json:"not_judged"`

	// Rewound is set if nodes found, after From, that the ledger had lost writes: it was purged,
	// or restored from an older copy. Slots before that may have run more often than it records.
	Rewound *Rewind `json:"rewound,omitempty"`
}

// Problems is the number of problems.
func (v Verification) Problems() int { return v.Missing + v.NoOutcome + v.Doubled + v.Early }

// Lateness says how long after their due time the handlers of Slots slots started, in milliseconds. P50
// and P99 may be up to 1/16 too large.
type Lateness struct {
	Slots   int          `json:"slots"`
	P50     float64      `json:"p50"`
	P99     float64      `json:"p99"`
	Max     float64      `json:"max"`
	Buckets []LateBucket `json:"buckets,omitempty"`
}

// LateBucket counts the slots that started up to UpTo milliseconds late, and later than the
// bucket before. The last bucket has no bound: UpTo is 0.
type LateBucket struct {
	UpTo  float64 `json:"le_ms,omitempty"`
	Slots int     `json:"slots"`
}

// NotJudged says what Verify did not judge, and why.
type NotJudged struct {
	Reason string `json:"reason"`

	// Jobs is how many jobs it affects, Names the first 20 of them.
	Jobs  int      `json:"jobs"`
	Names []string `json:"names"`

	// Slots is how many slots it affects. 0: not known.
	Slots int `json:"slots,omitempty"`

	// Expected is true if there was nothing to judge because nothing was due.
	Expected bool `json:"-"`
}

// Rewind reports that, at Time, the ledger held neither the write Lost nor a later one of that
// slot. Found is the revision that it held instead. Zero: no record.
type Rewind struct {
	Time  time.Time   `json:"time,omitzero"`
	Lost  LedgerWrite `json:"lost"`
	Found uint64      `json:"found,omitempty"`
}

// LedgerWrite is a write of a slot's record.
type LedgerWrite struct {
	Slot     string    `json:"slot"`
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
}

func newSlotProblem(p verify.Problem) SlotProblem {
	return SlotProblem{
		Problem: ProblemKind(p.Kind), ID: p.Slot.ID(), Job: p.Slot.Job, Slot: p.Slot.At, Due: p.Due.UTC(),
		State: p.State, Node: p.Node, Detail: p.Detail, BeyondRepair: p.Beyond,
	}
}

func newVerification(r verify.Report, rewound exchange.Rewound) Verification {
	v := Verification{
		OK: r.OK(), From: r.From.UTC(), To: r.To.UTC(), Jobs: r.Jobs, Slots: r.Slots, Outcomes: r.Outcomes,
		InProgress: r.InProgress, Beside: r.Beside, Missing: r.Missing, NoOutcome: r.NoOutcome, Doubled: r.Doubled, Early: r.Early,
		Late:      Lateness{Slots: r.Lateness.Slots, P50: milliseconds(r.Lateness.P50), P99: milliseconds(r.Lateness.P99), Max: milliseconds(r.Lateness.Max)},
		NotJudged: []NotJudged{},
	}
	for _, b := range r.Lateness.Buckets {
		v.Late.Buckets = append(v.Late.Buckets, LateBucket{milliseconds(b.Up), b.Slots})
	}
	for _, n := range r.NotJudged {
		v.NotJudged = append(v.NotJudged, NotJudged{n.Reason, n.Jobs, n.Names, n.Slots, n.Expected})
	}
	if !rewound.IsZero() {
		v.Rewound = &Rewind{rewound.Time, LedgerWrite(rewound.Lost), rewound.Found}
	}
	return v
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
