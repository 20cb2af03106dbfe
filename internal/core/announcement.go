package core

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// SlotAlgorithm is the version of the rules by which slots are computed from a
// definition. It grows when any program would compute other slots than before.
const SlotAlgorithm = 1

// Announcement is what a producer tells the others, at most once: nothing is lost
// with it, and nobody has to be told.
type Announcement struct {
	Node string

	// Started is when the incarnation began, by the broker's clock: the oldest
	// producers take part, the others rest.
	Started time.Time

	Kind AnnouncementKind

	// Time says: every slot of the producer's own share that is due up to it
	// has been acknowledged by the stream (or was covered by the watermark). Zero
	// claims nothing.
	Time time.Time

	// Except names jobs that Time says nothing about: they cannot be published.
	Except []string

	// Members and Registry are what the claim holds for: digests of who takes
	// part (and of how slots are computed), and of the registry. What a share is
	// follows from the two.
	Members, Registry uint64
}

// AnnouncementKind says what an announcement is for.
type AnnouncementKind string

const (
	// AnnounceHere is a sign of life of a producer that takes part.
	AnnounceHere AnnouncementKind = "here"
	// AnnounceAsk asks those that take part to announce themselves.
	AnnounceAsk AnnouncementKind = "ask"
	// AnnounceLeave is the last one: the producer stops, or rests.
	AnnounceLeave AnnouncementKind = "leave"
)

type announcementWire struct {
	V        int              `json:"v"`
	Node     string           `json:"node"`
	Started  time.Time        `json:"started"`
	Kind     AnnouncementKind `json:"kind"`
	Time     time.Time        `json:"time,omitzero"`
	Except   []string         `json:"except,omitempty"`
	Members  digest           `json:"members,omitempty"`
	Registry digest           `json:"registry,omitempty"`
}

// digest is 64 bits as 16 hexadecimal digits: JSON's numbers are not exact.
type digest uint64

func (d digest) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(d)), nil }

func (d *digest) UnmarshalText(text []byte) error {
	u, err := strconv.ParseUint(string(text), 16, 64)
	*d = digest(u)
	return err
}

// MarshalJSON writes the message's body.
func (a Announcement) MarshalJSON() ([]byte, error) {
	return codec.Encode(announcementWire{
		codec.Version, a.Node, a.Started.UTC(), a.Kind, a.Time.UTC(), a.Except, digest(a.Members), digest(a.Registry),
	}, nil)
}

// DecodeAnnouncement reads a message's body. Errors wrap ErrInvalid or ErrVersion.
func DecodeAnnouncement(data []byte) (Announcement, error) {
	var w announcementWire
	if _, err := codec.Decode("announcement", data, &w); err != nil {
		return Announcement{}, err
	}
	if err := w.bound(); err != nil {
		return Announcement{}, err
	}
	return Announcement{w.Node, w.Started, w.Kind, w.Time, w.Except, uint64(w.Members), uint64(w.Registry)}, nil
}

func (w *announcementWire) bound() error {
	b := codec.Bounds{What: "announcement"}
	b.Names("node", w.Node)
	b.Words("kind", string(w.Kind))
	b.Times("started", &w.Started)
	b.Times("time", &w.Time)
	b.Length("except", len(w.Except), codec.MaxExcept)
	b.Names("job", w.Except...)
	return b.Err
}
