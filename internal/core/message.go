package core

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/job"
)

// Headers of a slot message.
const (
	HeaderMsgID       = "Nats-Msg-Id"
	HeaderSlot        = "Cronce-Slot"
	HeaderJobRevision = "Cronce-Job-Revision"
	HeaderNode        = "Cronce-Node"
	HeaderDue         = "Cronce-Due"
	HeaderCaughtUp    = "Cronce-Caught-Up"
	HeaderBackfill    = "Cronce-Backfill"
	HeaderChained     = "Cronce-Chained"
	HeaderEvent       = "Cronce-Event"
	HeaderRefused     = "Cronce-Refused"
	HeaderMissed      = "Cronce-Missed"
	HeaderMissedLast  = "Cronce-Missed-Last"
	HeaderTraceparent = "traceparent" // W3C
)

// Message is a slot as a producer publishes it and a worker receives it. The
// body beside it is the job's payload as given.
type Message struct {
	Slot job.Slot

	// JobRevision is the registry revision of the definition that the slot was
	// computed from.
	JobRevision uint64

	// Node is the producer.
	Node string

	// Due is the slot's instant plus the job's spread, or the time that a
	// triggered run was set for. One that was set for none is due when it is
	// published: zero. ParseMessage takes an instant for the due time of a planned slot
	// that is said to be due before it.
	Due time.Time

	// CaughtUp marks a slot that ran late by its catch-up policy: its start
	// deadline counts from publication.
	CaughtUp bool

	// Backfill marks a slot that an operator asked for after its time. Like a
	// caught-up one it is late by nature: its start deadline counts from
	// publication.
	Backfill bool

	// Chained marks a slot that follows from others (see Chain): it is due when the
	// last of them has succeeded, and its start deadline counts from publication.
	Chained bool

	// Event marks a run that a message of a stream started (see Started): Due is when
	// that message was stored, and the run's age counts from then.
	Event bool

	// Refused is why a run cannot be made, although there is a reason to make it: it
	// is only recorded, as failed. One line.
	Refused string

	// Missed is 0 for a slot to run, 1 for a slot that the catch-up policy left
	// out, which the worker only records; for a range, how many slots it holds,
	// the last of them at MissedLast.
	Missed     int
	MissedLast time.Time

	// Traceparent says, as W3C's header of this name does, which trace the slot
	// belongs to and which span it was published in. Empty: it was not traced.
	Traceparent string

	// Offer is 0 for the copies of producers, whose message ID is the slot's, so
	// that the stream folds them. A slot that is offered anew, because its
	// message was lost, gets a message ID of its own: <slot ID>/r<Offer>.
	Offer int
}

// Header returns the message's headers. They are what a nats.Header is made of.
func (m Message) Header() map[string][]string {
	h := make(map[string][]string, 8)
	values := make([]string, 0, 8) // of most messages, at once
	m.EachHeader(func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	})
	return h
}

// EachHeader calls set for each of the message's headers: it is Header for those who
// keep them in a place of their own.
func (m Message) EachHeader(set func(name, value string)) {
	id := m.Slot.ID()
	set(HeaderSlot, id)
	offer := id
	if m.Offer > 0 {
		offer += "/r" + strconv.Itoa(m.Offer)
	}
	set(HeaderMsgID, offer)
	set(HeaderJobRevision, strconv.FormatUint(m.JobRevision, 10))
	set(HeaderNode, m.Node)
	if !m.Due.IsZero() {
		set(HeaderDue, m.due(id))
	}
	if m.CaughtUp {
		set(HeaderCaughtUp, "1")
	}
	if m.Backfill {
		set(HeaderBackfill, "1")
	}
	if m.Chained {
		set(HeaderChained, "1")
	}
	if m.Event {
		set(HeaderEvent, "1")
	}
	if m.Refused != "" {
		set(HeaderRefused, m.Refused)
	}
	if m.Traceparent != "" {
		set(HeaderTraceparent, m.Traceparent)
	}
	if m.Missed > 0 {
		set(HeaderMissed, strconv.Itoa(m.Missed))
	}
	if !m.MissedLast.IsZero() {
		set(HeaderMissedLast, m.MissedLast.UTC().Format(time.RFC3339))
	}
}

// due is the due time's text, which is the end of the slot's ID for most slots.
func (m Message) due(id string) string {
	if s := m.Slot; s.Token == "" && !s.Range && s.Shards == 0 && m.Due.Equal(s.At) && s.At.Nanosecond() == 0 {
		return id[len(s.Job)+1:]
	}
	return m.Due.UTC().Format(time.RFC3339Nano) // a trigger's may have a fraction
}

// offerOf is the number in the message ID of a slot that was offered anew, 0 in that
// of any other. A message that has fired from a timer has no ID.
func offerOf(id, slot string) (int, error) {
	number := strings.TrimPrefix(strings.TrimPrefix(id, slot), "/r")
	switch {
	case id == "" || id == slot:
		return 0, nil
	case id != slot+"/r"+number || number == "" || strings.Trim(number, "0123456789") != "":
		return 0, fmt.Errorf("%w message: %w: it names slot %q, and its message ID is %q", job.ErrInvalid, ErrContradicts, codec.Clip(slot), codec.Clip(id))
	}
	offer, _ := strconv.ParseUint(number, 10, strconv.IntSize-1)
	return int(offer), nil
}

// CheckSubject refuses the message if the subject on which it was published is not
// one of its slot's job: NS.slot.<queue>.<job>, or NS.timer.due.<queue>.<job>. The
// server checks what a login publishes to, and not what it says there: without this,
// whoever may publish for one job could have any other run. Its errors wrap
// ErrInvalid and ErrContradicts.
func (m Message) CheckSubject(subject string) error {
	const dot = "."
	name := strings.LastIndex(subject, dot)
	queue := strings.LastIndex(subject[:max(name, 0)], dot)
	_, kind, _ := strings.Cut(subject[:max(queue, 0)], dot)
	if (kind == "slot" || kind == "timer.due") && subject[name+1:] == m.Slot.Job {
		return nil
	}
	return fmt.Errorf("%w message: %w: it names slot %q, and was published on %q", job.ErrInvalid, ErrContradicts, codec.Clip(m.Slot.ID()), codec.Clip(subject))
}

// ParseMessage reads the headers of a slot message. The slot's name comes from
// Cronce-Slot, since a message offered again has a Msg-Id of its own; a Msg-Id that
// is of another slot is ErrContradicts. Its errors wrap ErrInvalid. Who has the
// message from a stream checks its subject too: see CheckSubject.
func ParseMessage(header map[string][]string) (Message, error) {
	get := func(name string) string {
		if v := header[name]; len(v) > 0 {
			return strings.TrimSpace(v[0])
		}
		return ""
	}
	var m Message
	id, slot := get(HeaderMsgID), get(HeaderSlot)
	if slot == "" {
		slot = codec.Reoffer.ReplaceAllString(id, "")
	}
	var err error
	if m.Slot, err = job.ParseSlotID(slot); err != nil {
		return Message{}, err
	}
	if m.Offer, err = offerOf(id, slot); err != nil {
		return Message{}, err
	}
	if trace := get(HeaderTraceparent); len(trace) <= codec.MaxWord {
		m.Traceparent = trace // a longer one is none
	}
	m.Node, m.CaughtUp, m.Backfill, m.Chained = strings.ToValidUTF8(codec.Clip(get(HeaderNode)), ""), get(HeaderCaughtUp) != "", get(HeaderBackfill) != "", get(HeaderChained) != ""
	m.Event = get(HeaderEvent) != ""
	m.Refused = codec.ClipTo(strings.ToValidUTF8(get(HeaderRefused), "\uFFFD"), maxErrorBytes)
	number := func(name string, dst *uint64) {
		if v := get(name); v != "" && err == nil {
			if *dst, err = strconv.ParseUint(v, 10, 64); err != nil {
				err = fmt.Errorf("%w header %s %q: want a number", job.ErrInvalid, name, codec.Clip(v))
			}
		}
	}
	instant := func(name string, dst *time.Time) {
		if v := get(name); v != "" && err == nil {
			if *dst, err = time.Parse(time.RFC3339, v); err != nil {
				err = fmt.Errorf("%w header %s %q: want an instant", job.ErrInvalid, name, codec.Clip(v))
				return
			}
			b := codec.Bounds{What: "header " + name}
			b.Times("time", dst)
			err = b.Err
		}
	}
	var missed uint64
	number(HeaderJobRevision, &m.JobRevision)
	number(HeaderMissed, &missed)
	instant(HeaderDue, &m.Due)
	instant(HeaderMissedLast, &m.MissedLast)
	if err != nil {
		return Message{}, err
	}
	m.Missed = int(min(missed, codec.MaxSlots))
	if m.Due.IsZero() || m.Due.Before(m.Slot.At) && !m.Chained {
		m.Due = m.Slot.At // nothing is due before its instant, whoever says so
	}
	return m, nil
}
