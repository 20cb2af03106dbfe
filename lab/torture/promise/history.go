package promise

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/plan"
)

// History is everything that is known about a run. It has three independent sources: what the
// workers recorded, each write that the broker republished, and what is stored at the end.
type History struct {
	Lease time.Duration
	Cases []plan.Case

	// From and Until bound the slots: From inclusive, Until exclusive.
	From, Until time.Time

	// Lines is what the processes and torture itself recorded. Deaths has the time, by boot.Now, at
	// which each life of a process ended.
	Lines  []Line
	Deaths map[string]time.Duration

	// Publishers are the processes that publish slots, except the one whose clock may be so wrong
	// that it refuses to.
	Publishers map[string]bool

	// Broker converts between boot times and the broker's time.
	Broker Clock

	// Skew bounds the difference between the clocks of two servers.
	Skew time.Duration

	// These are the writes that the broker stored. Some may be missing, because a server that is
	// killed does not republish its last writes. Marks and Locks are in the broker's order.
	Ledger []LedgerWrite
	Nodes  []NodeWrite
	Marks  []MarkWrite
	Locks  []LockWrite
	Slots  []SlotWrite
	Acks   []Ack

	// Records is the ledger at the end, Final the records of the nodes at the end.
	Records map[job.Slot]LedgerWrite
	Final   []NodeWrite

	// Events are the stored events.
	Events []job.Event
}

// LedgerWrite is one write of a slot's record.
type LedgerWrite struct {
	Seq    uint64 // the revision
	Last   uint64 // the revision that it replaced; 0: none, or see Alone
	Alone  bool   // it was read at the end and never republished, so Last is not known
	Time   time.Time
	Record job.Record
	Gone   bool // the record was deleted
	Slot   job.Slot
}

// NodeWrite is one write of a node's key.
type NodeWrite struct {
	Seq, Last uint64
	Time      time.Time
	Node      exchange.Node
}

// MarkWrite is one write of the watermark.
type MarkWrite struct {
	Seq  uint64
	Time time.Time
	Mark exchange.Watermark
}

// LockWrite is one write of a job's lock.
type LockWrite struct {
	Seq, Last uint64
	Time      time.Time
	Lock      core.Lock
	Gone      bool
}

// SlotWrite is one message of the stream of slots.
type SlotWrite struct {
	Seq     uint64
	Time    time.Time
	Message core.Message
	ID      string // its Nats-Msg-Id
}

// Ack is the first answer that settled a message.
type Ack struct {
	Seq  uint64 // of the message
	Boot time.Duration
}

// Clock converts between boot times and the broker's time. Each sample is the offset between
// the two clocks at an instant, with the bound of its error.
type Clock struct{ samples []clockSample }

type clockSample struct {
	at, offset, err time.Duration
}

// The clocks drift apart by at most 1/drift (500 ppm) of the time since a sample.
const drift = 2000

// Add adds a sample: the broker's clock showed stamp between two boot times.
func (c *Clock) Add(sent, got time.Duration, stamp time.Time) {
	c.samples = append(c.samples, clockSample{
		at: got, offset: time.Duration(stamp.UnixNano()) - (sent+got)/2, err: (got - sent + 1) / 2,
	})
}

// Merge adds the samples of another clock.
func (c *Clock) Merge(other Clock) { c.samples = append(c.samples, other.samples...) }

// At returns the broker's time at a boot time, and the bound of its error.
func (c Clock) At(boot time.Duration) (time.Time, time.Duration) {
	s, err := c.nearest(func(s clockSample) time.Duration { return boot - s.at })
	return time.Unix(0, int64(boot+s.offset)).UTC(), err
}

// Boot returns the boot time at a time of the broker, and the bound of its error.
func (c Clock) Boot(t time.Time) (time.Duration, time.Duration) {
	s, err := c.nearest(func(s clockSample) time.Duration { return time.Duration(t.UnixNano()) - s.offset - s.at })
	return time.Duration(t.UnixNano()) - s.offset, err
}

func (c Clock) nearest(away func(clockSample) time.Duration) (best clockSample, bound time.Duration) {
	bound = time.Hour // without a sample
	for _, s := range c.samples {
		if err := s.err + away(s).Abs()/drift; err < bound {
			best, bound = s, err
		}
	}
	return best, bound
}

// Violation is a broken promise.
type Violation struct {
	// Rule is the name of the rule that was broken.
	Rule string `json:"rule"`

	Slot string `json:"slot,omitempty"`

	// Detail says what happened. Evidence has the lines of the record, and the writes that the broker
	// stored, that show it.
	Detail   string   `json:"detail"`
	Evidence []string `json:"evidence,omitempty"`
}

// Tally counts what a run has shown.
type Tally struct {
	Slots       int               `json:"slots"`
	Outcomes    map[job.State]int `json:"outcomes"`
	Attempts    int               `json:"attempts"` // runs of handlers
	Takeovers   int               `json:"takeovers"`
	Refused     int               `json:"refused"` // completions
	Fenced      int               `json:"fenced"`  // nodes
	Redelivered int               `json:"redelivered"`
	Late        int               `json:"late"`    // redeliveries of a slot that was claimed or had its outcome
	Batched     int               `json:"batched"` // messages that were stored in atomic batches
	Worst       time.Duration     `json:"-"`       // from due to the first start
	WorstSlot   string            `json:"-"`
}

// WriteTrace lists the writes of the ledger, the nodes and the watermark in a file, for people who
// examine a run.
func (h History) WriteTrace(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	out := bufio.NewWriter(f)
	for _, w := range h.Ledger {
		fmt.Fprintf(out, "%s %s\n", w.Slot, w)
	}
	for _, w := range h.Nodes {
		fmt.Fprintf(out, "node %s revision %d over %d at %s: %s %s\n", w.Node.Name, w.Seq, w.Last, Stamp(w.Time), w.Node.State, w.Node.FencedBy)
	}
	for _, w := range h.Marks {
		fmt.Fprintf(out, "watermark %s written at %s by %s\n", w.Mark.Time.UTC().Format(time.RFC3339Nano), Stamp(w.Time), w.Mark.Node)
	}
	return out.Flush()
}
