package core

import (
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// SweepEnd is what the last sweep for lost slots left behind: its value says who made
// it and what it could not read. The broker's timestamp of the value says when.
type SweepEnd struct {
	Node string

	// Skipped are the first things that the sweep could not read and passed over, at
	// most MaxSkipped. More is how many others there were.
	Skipped []PassedOver
	More    int

	// Newest is the newest write of the ledger that the sweep has seen.
	Newest LedgerMark

	// Rewound says that the ledger has lost writes which a node had seen. Zero: it has
	// not, as far as is known.
	Rewound Rewound

	Nonce string
	Extra codec.Extra
}

// MaxSkipped bounds SweepEnd.Skipped, maxSaid the bytes of what is said of each.
const (
	MaxSkipped = 20
	maxSaid    = 300
)

// Skip takes in that the sweep passed over something.
func (s *SweepEnd) Skip(what string, why error) {
	if len(s.Skipped) == MaxSkipped {
		s.More++
		return
	}
	s.Skipped = append(s.Skipped, PassedOver{codec.ClipTo(what, maxSaid), codec.ClipTo(why.Error(), maxSaid)})
}

// PassedOver is one thing that a sweep could not read, and why.
type PassedOver struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// LedgerMark is one write of the ledger: the slot's record stood at the revision at
// the time.
type LedgerMark struct {
	Slot     string    `json:"slot"`
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
}

// Rewound says that at Time the write Lost was not in the ledger any more, nor a later
// one of its slot. Found is the revision that stood there instead; 0: none.
type Rewound struct {
	Time  time.Time  `json:"time,omitzero"`
	Lost  LedgerMark `json:"lost"`
	Found uint64     `json:"found,omitempty"`
}

// IsZero reports whether nothing was lost.
func (r Rewound) IsZero() bool { return r.Time.IsZero() }

type sweepEndWire struct {
	V       int          `json:"v"`
	Node    string       `json:"node"`
	Skipped []PassedOver `json:"skipped,omitempty"`
	More    int          `json:"more,omitempty"`
	Newest  LedgerMark   `json:"newest,omitzero"`
	Rewound Rewound      `json:"rewound,omitzero"`
	Nonce   string       `json:"nonce"`
}

// MarshalJSON writes the value of the key "sweep".
func (s SweepEnd) MarshalJSON() ([]byte, error) {
	return codec.Encode(sweepEndWire{codec.Version, s.Node, s.Skipped, s.More, s.Newest, s.Rewound, s.Nonce}, s.Extra)
}

// DecodeSweepEnd reads the value of the key "sweep".
func DecodeSweepEnd(data []byte) (SweepEnd, error) {
	var w sweepEndWire
	extra, err := codec.Decode("end of a sweep", data, &w)
	if err == nil {
		err = w.bound()
	}
	if err != nil {
		return SweepEnd{}, err
	}
	return SweepEnd{w.Node, w.Skipped, w.More, w.Newest, w.Rewound, w.Nonce, extra}, nil
}

func (w *sweepEndWire) bound() error {
	b := codec.Bounds{What: "end of a sweep"}
	b.Words("node", w.Node)
	b.Words("nonce", w.Nonce)
	b.Words("slot", w.Newest.Slot, w.Rewound.Lost.Slot)
	b.Times("time", &w.Newest.Time, &w.Rewound.Time, &w.Rewound.Lost.Time)
	b.Number("more", w.More, 0, codec.MaxSlots)
	b.Length("skipped", len(w.Skipped), MaxSkipped)
	for i := range w.Skipped {
		codec.CutText(maxSaid, &w.Skipped[i].What, &w.Skipped[i].Why)
	}
	return b.Err
}
