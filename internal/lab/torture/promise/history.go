package promise

import (
	"bufio"
	"fmt"
	"os"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/torture/plan"
	"github.com/cronce-io/cronce/job"
)

// History is everything that was seen of a run, from three independent sides:
// what the workers wrote down, what the broker stored (as it told everybody who
// listened, write by write), and what stands there at the end.
type History struct {
	Lease time.Duration
	Cases []plan.Case

	// From and Until bound the slots: From inclusive, Until exclusive.
	From, Until time.Time

	// Lines is the record of the handlers. Deaths is when each life of a process
	// was seen to have ended, a reading of boot.Now.
	Lines  []Line
	Deaths map[string]time.Duration

	// Publishers are the processes that publish slots, those left out whose clock may be
	// so wrong that they refuse to.
	Publishers map[string]bool

	// Broker tells the broker's time of a boot time.
	Broker Clock

	// Skew bounds how far the clocks of two servers may be apart.
	Skew time.Duration

	// What the broker stored, in its order; some may be missing, since a server
	// that is killed does not tell of its last writes.
	Ledger []LedgerWrite
	Nodes  []NodeWrite
	Marks  []MarkWrite
	Locks  []LockWrite
	Slots  []SlotWrite
	Acks   []Ack

	// Records is what stands in the ledger at the end, Dead the nodes that say
	// there that they are not alive.
	Records map[job.Slot]LedgerWrite
	Final   []NodeWrite

	// Events are those that were kept.
	Events []job.Event
}

// LedgerWrite is one write of a slot's record.
type LedgerWrite struct {
	Seq    uint64 // the revision
	Last   uint64 // the revision that it replaced; 0: none, or see Alone
	Alone  bool   // it was read at the end: what it replaced is not known
	Time   time.Time
	Record job.Record
	Gone   bool // it was a deletion
	Slot   job.Slot
}

// NodeWrite is one write of a node's key.
type NodeWrite struct {
	Seq, Last uint64
	Time      time.Time
	Node      core.Node
}

// MarkWrite is one write of the watermark.
type MarkWrite struct {
	Seq  uint64
	Time time.Time
	Mark core.Watermark
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
	Queue   string
}

// Ack is a final answer to a message: the first one heard.
type Ack struct {
	Seq  uint64 // of the message
	Boot time.Duration
}

// Clock tells the broker's time. It is made of samples: the broker's clock minus
// the boot clock, each with its bound.
type Clock struct{ samples []clockSample }

type clockSample struct {
	at, offset, err time.Duration
}

// drift bounds how fast a clock runs wrong between two samples: 500 ppm.
const drift = 2000

// Add takes in that the broker's clock showed stamp between two boot times.
func (c *Clock) Add(sent, got time.Duration, stamp time.Time) {
	c.samples = append(c.samples, clockSample{
		at: got, offset: time.Duration(stamp.UnixNano()) - (sent+got)/2, err: (got - sent + 1) / 2,
	})
}

// Merge takes in the samples of another clock.
func (c *Clock) Merge(other Clock) { c.samples = append(c.samples, other.samples...) }

// At is the broker's time at a boot time, and the bound of its error.
func (c Clock) At(boot time.Duration) (time.Time, time.Duration) {
	s, err := c.nearest(func(s clockSample) time.Duration { return boot - s.at })
	return time.Unix(0, int64(boot+s.offset)).UTC(), err
}

// Boot is the boot time at a broker's time, and the bound of its error.
func (c Clock) Boot(t time.Time) (time.Duration, time.Duration) {
	s, err := c.nearest(func(s clockSample) time.Duration { return time.Duration(t.UnixNano()) - s.offset - s.at })
	return time.Duration(t.UnixNano()) - s.offset, err
}

func (c Clock) nearest(away func(clockSample) time.Duration) (best clockSample, bound time.Duration) {
	bound = time.Hour // nothing is known
	for _, s := range c.samples {
		if err := s.err + away(s).Abs()/drift; err < bound {
			best, bound = s, err
		}
	}
	return best, bound
}

// Violation is one broken promise, with the evidence.
type Violation struct {
	// Rule names what was broken.
	Rule string `json:"rule"`

	Slot string `json:"slot,omitempty"`

	// Detail says what happened, Evidence shows it: lines of the record, writes of
	// the broker.
	Detail   string   `json:"detail"`
	Evidence []string `json:"evidence,omitempty"`
}

// Tally counts what was seen.
type Tally struct {
	Slots       int               `json:"slots"`
	Outcomes    map[job.State]int `json:"outcomes"`
	Attempts    int               `json:"attempts"`
	Takeovers   int               `json:"takeovers"`
	Refused     int               `json:"refused"`
	Fenced      int               `json:"fenced"`
	Redelivered int               `json:"redelivered"`
	Late        int               `json:"late"` // redeliveries of a slot that somebody had claimed
	Worst       time.Duration     `json:"-"`    // from due to the first start
	WorstSlot   string            `json:"-"`
}

// WriteTrace keeps what the broker told of the ledger and the nodes, for people who
// look into a run that was kept.
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
