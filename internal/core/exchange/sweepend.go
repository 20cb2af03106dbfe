package exchange

import (
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// SweepEnd is the result of the last sweep for lost slots. The broker's timestamp of the value is
// when the sweep ended.
type SweepEnd struct {
	Node string `json:"node"`

	// Skipped are the first values that the sweep could not read, up to maxSkipped. More is
	// the number of further ones.
	Skipped []SkippedValue `json:"skipped,omitempty"`
	More    int            `json:"more,omitempty"`

	// Newest is the newest write of the ledger that the sweep has read.
	Newest LedgerMark `json:"newest,omitzero"`

	// Rewound is set if the ledger has lost writes that a node had read before.
	Rewound Rewound `json:"rewound,omitzero"`

	Nonce string      `json:"nonce"`
	Extra codec.Extra `json:"-"`
}

// maxSkipped bounds SweepEnd.Skipped, and maxSkippedText the texts of each value, in bytes.
const (
	maxSkipped     = 20
	maxSkippedText = 300
)

// Skip adds a value that the sweep could not read.
func (s *SweepEnd) Skip(what string, why error) {
	if len(s.Skipped) == maxSkipped {
		s.More++
		return
	}
	s.Skipped = append(s.Skipped, SkippedValue{codec.ClipTo(what, maxSkippedText), codec.ClipTo(why.Error(), maxSkippedText)})
}

// SkippedValue is a value that a sweep could not read, and why.
type SkippedValue struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// LedgerMark is one write of the ledger: at Time, the record of Slot had Revision.
type LedgerMark struct {
	Slot     string    `json:"slot"`
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
}

// Rewound reports that the ledger has lost writes: at Time, it held neither the write Lost nor a
// later one of that slot. Found is the revision that it held instead. Zero: no record.
type Rewound struct {
	Time  time.Time  `json:"time,omitzero"`
	Lost  LedgerMark `json:"lost"`
	Found uint64     `json:"found,omitempty"`
}

// IsZero reports whether no write was lost.
func (r Rewound) IsZero() bool { return r.Time.IsZero() }

type sweepEndMembers SweepEnd // without methods

type sweepEndWire struct {
	V int `json:"v"`
	sweepEndMembers
}

// MarshalJSON writes the value of the key "sweep".
func (s SweepEnd) MarshalJSON() ([]byte, error) {
	return codec.Encode(sweepEndWire{codec.Version, sweepEndMembers(s)}, s.Extra)
}

// DecodeSweepEnd reads the value of the key "sweep".
func DecodeSweepEnd(data []byte) (SweepEnd, error) {
	var w sweepEndWire
	extra, err := codec.DecodeBounded("end of a sweep", data, &w, func(b *codec.Bounds) {
		b.Words("node", w.Node)
		b.Words("nonce", w.Nonce)
		b.Words("slot", w.Newest.Slot, w.Rewound.Lost.Slot)
		b.Times("time", &w.Newest.Time, &w.Rewound.Time, &w.Rewound.Lost.Time)
		b.Number("more", w.More, 0, codec.MaxSlots)
		b.Length("skipped", len(w.Skipped), maxSkipped)
		for i := range w.Skipped {
			codec.CutText(maxSkippedText, &w.Skipped[i].What, &w.Skipped[i].Why)
		}
	})
	if err != nil {
		return SweepEnd{}, err
	}
	w.Extra = extra
	return SweepEnd(w.sweepEndMembers), nil
}
