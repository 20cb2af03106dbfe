package exchange

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// SlotAlgorithm is the version of the rules that compute slots from a definition. Increase it with
// every change of these rules that gives a definition other slots.
const SlotAlgorithm = 1

// Announcement is a message from one producer to the others. It is delivered at most once. If it is
// lost, other producers may publish the same slots, and the stream drops these duplicates.
type Announcement struct {
	Node string

	// Started is when the node started, as its record says. The oldest producers are active: they
	// take part in publishing. The others rest.
	Started time.Time

	Kind AnnouncementKind

	// Time is how far the producer has published its share: the stream has acknowledged
	// every slot of the share that is due up to Time, or the watermark covers it. Zero: not
	// known.
	Time time.Time

	// Except names jobs for which Time does not hold, because their slots cannot be
	// published.
	Except []string

	// Members is a digest of the active producers and of how they compute slots. Registry is a
	// digest of the registry. The two determine the shares. A producer with other digests must
	// not use Time.
	Members, Registry uint64
}

// AnnouncementKind is the purpose of an announcement.
type AnnouncementKind string

const (
	// AnnounceHere is the heartbeat of an active producer.
	AnnounceHere AnnouncementKind = "here"
	// AnnounceAsk asks the active producers to announce themselves.
	AnnounceAsk AnnouncementKind = "ask"
	// AnnounceLeave is the last announcement of a producer that stops, rests from now on, or cannot
	// publish for now.
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

// digest is written as 16 hexadecimal digits, since numbers in JSON are not exact.
type digest uint64

func (d digest) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%016x", uint64(d)), nil }

func (d *digest) UnmarshalText(text []byte) error {
	u, err := strconv.ParseUint(string(text), 16, 64)
	*d = digest(u)
	return err
}

// MarshalJSON writes the body of the message.
func (a Announcement) MarshalJSON() ([]byte, error) {
	return codec.Encode(announcementWire{
		codec.Version, a.Node, a.Started.UTC(), a.Kind, a.Time.UTC(), a.Except, digest(a.Members), digest(a.Registry),
	}, nil)
}

// DecodeAnnouncement reads the body of a message. Its errors wrap ErrInvalid or ErrVersion.
func DecodeAnnouncement(data []byte) (Announcement, error) {
	var w announcementWire
	_, err := codec.DecodeBounded("announcement", data, &w, func(b *codec.Bounds) {
		b.Names("node", w.Node)
		b.Words("kind", string(w.Kind))
		b.Times("started", &w.Started)
		b.Times("time", &w.Time)
		b.Length("except", len(w.Except), codec.MaxExcept)
		b.Names("job", w.Except...)
	})
	if err != nil {
		return Announcement{}, err
	}
	return Announcement{w.Node, w.Started, w.Kind, w.Time, w.Except, uint64(w.Members), uint64(w.Registry)}, nil
}
