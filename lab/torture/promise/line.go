package promise

import (
	"time"

	"github.com/cronce-io/cronce/lab/torture/plan"
)

// Kinds of lines.
const (
	LineUp     = "up"     // from now on the process can handle a HUP
	LineStart  = "start"  // a handler was called
	LineCancel = "cancel" // the handler's context ended, because of Cause
	LineEnd    = "end"    // the handler returns Result
	LinePause  = "pause"  // the process did not run from From to Boot
	LineOrder  = "order"  // a trigger of the slot was acknowledged
	LineFault  = "fault"  // the fault Kind hit Of from From to Boot
	LineHeld   = "held"   // the servers did not answer a heartbeat of Of from From to Boot; see SlowAnswer
)

// Names in Line.Process that are not lives of processes.
const (
	TortureProcess = "torture" // the torture itself
	ServerProcess  = "servers" // any of the servers
)

// Line is one line of the record. The times of all lines can be compared, since all
// processes run on one machine.
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

	// Kind, Of and Delay describe a fault: its kind, the life of the process that it hit
	// (none for faults of the servers and the streams), and the delay of a Lag. Of is also
	// the life whose heartbeat LineHeld is about.
	Kind  plan.Kind     `json:"kind,omitempty"`
	Of    string        `json:"of,omitempty"`
	Delay time.Duration `json:"delay,omitempty"`
}
