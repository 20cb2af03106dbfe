package promise

import (
	"time"

	"github.com/cronce-io/cronce/internal/lab/torture/plan"
)

// What a line of the record tells.
const (
	LineUp     = "up"     // the process is ready for a SIGHUP
	LineStart  = "start"  // a handler was called
	LineCancel = "cancel" // its context has ended, for Cause
	LineEnd    = "end"    // it is about to return, with Result
	LinePause  = "pause"  // the process did not run from From to Boot
	LineOrder  = "order"  // a trigger of the slot was acknowledged
	LineFault  = "fault"  // the torture did Kind to Of from From to Boot
)

// Names that stand where a line names a process.
const (
	TortureProcess = "torture" // the torture itself
	ServerProcess  = "servers" // the servers, whichever
)

// Line is one line of the record: what a worker did, in its own words, at a time
// that can be compared with every other line's, since all processes are on one
// machine.
type Line struct {
	What    string        `json:"what"`
	Process string        `json:"process"` // "w1.3": the third life of worker 1
	Boot    time.Duration `json:"boot"`    // reading of boot.Now
	From    time.Duration `json:"from,omitempty"`
	Slot    string        `json:"slot,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	Fence   uint64        `json:"fence,omitempty"`
	Node    string        `json:"node,omitempty"`
	Result  string        `json:"result,omitempty"`
	Cause   string        `json:"cause,omitempty"`

	// Of a fault: its kind, the life of the process or the stream that it hit, and
	// the delay of a Lag. A fault of the servers has no Of.
	Kind  plan.Kind     `json:"kind,omitempty"`
	Of    string        `json:"of,omitempty"`
	Delay time.Duration `json:"delay,omitempty"`
}
