package core

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
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

	// HeaderScheduler is the subject of the timer that fired a message. The server writes it.
	HeaderScheduler = "Nats-Scheduler"
)

// Message is a slot as a producer publishes it and a worker receives it. It is sent as headers;
// the body of the message is the payload.
type Message struct {
	Slot job.Slot

	// JobRevision is the registry revision of the definition from which the slot was computed.
	JobRevision uint64

	// Node is the publisher: a node or, if an operator ordered the run, the operator's name.
	Node string

	// Due is when the slot is due. For a planned slot it is the instant plus the delay of
	// Job.Spread, for a triggered run the requested time; see also Chained and Event. Zero: the
	// run is due when it is published. If Due is before the slot's instant, ParseMessage sets it
	// to the instant, except for a chained slot.
	Due time.Time

	// CaughtUp is true for a slot that runs late because of its job's catch-up policy. Its start
	// deadline counts from the publication.
	CaughtUp bool

	// Backfill is true for a slot that an operator backfilled or reopened. Its start deadline
	// counts from the publication.
	Backfill bool

	// Chained is true for a slot of a job that runs after others (see Chain). It is due when the last of
	// them succeeded, and its start deadline counts from the publication.
	Chained bool

	// Event is true for a run that a message of a user's stream started (see EventRun and job.On). Due is when
	// that message was stored, and the age of the run counts from then.
	Event bool

	// Refused is why a run cannot start, in one line. The worker only records it as failed.
	// Empty: the run can start.
	Refused string

	// Missed is 0 for a slot that runs. It is 1 for a slot that the catch-up policy left out,
	// which the worker only records. For a range it is the number of slots, of which the last
	// is at MissedLast.
	Missed     int
	MissedLast time.Time

	// Traceparent is the W3C header of that name. It names the slot's trace, and the span of the
	// publication. Empty: the slot is not traced.
	Traceparent string

	// Offer is 0 in the messages of producers. Their message ID is the slot ID, so that the
	// stream drops all copies but one. A slot is offered again if its message was lost, or if an
	// operator reopened it: its message is published with the message ID <slot ID>/r<Offer>.
	Offer int

	// Scheduler is the subject of the timer whose message the server published when it was due.
	// Empty: no timer fired the message.
	Scheduler string
}

// LeftOut reports whether the catch-up policy left the slot out, so that a worker only records it. A
// range never runs, even if its message does not say how many slots it has.
func (m Message) LeftOut() bool { return m.Missed > 0 || m.Slot.Range }

// InBulk reports whether the message goes into the bulk lane of its queue: it may be one of thousands that
// come at once. A planned slot that is on time, one that follows another slot, and one that is offered
// again, such as a slot that was called from its job's line, do not wait behind those.
func (m Message) InBulk() bool {
	return m.Offer == 0 && !m.Chained && (m.Slot.Token != "" || m.CaughtUp || m.Backfill || m.LeftOut())
}

// Header returns the headers of the message, for a nats.Header.
func (m Message) Header() map[string][]string {
	h := make(map[string][]string, 8)
	values := make([]string, 0, 8) // a single allocation for most messages
	m.EachHeader(func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	})
	return h
}

// EachHeader calls set for each header of the message. It does not allocate a map.
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
	flag := func(name string, on bool) {
		if on {
			set(name, "1")
		}
	}
	flag(HeaderCaughtUp, m.CaughtUp)
	flag(HeaderBackfill, m.Backfill)
	flag(HeaderChained, m.Chained)
	flag(HeaderEvent, m.Event)
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

// due returns the text of the due time. For most slots it is the end of the slot's ID.
func (m Message) due(id string) string {
	if s := m.Slot; s.Token == "" && !s.Range && s.Shards == 0 && m.Due.Equal(s.At) && s.At.Nanosecond() == 0 {
		return id[len(s.Job)+1:]
	}
	return m.Due.UTC().Format(time.RFC3339Nano) // the due time of a triggered run may have a fraction of a second
}

// offerOf returns the number in the message ID of a slot that was offered again, and 0 for any
// other. A message that a timer published has no ID.
func offerOf(id, slot string) (int, error) {
	number := strings.TrimPrefix(strings.TrimPrefix(id, slot), "/r")
	switch {
	case id == "" || id == slot:
		return 0, nil
	case id != slot+"/r"+number || number == "" || strings.Trim(number, "0123456789") != "":
		return 0, fmt.Errorf("%w message: %w: it names slot %q, and its message ID is %q", job.ErrInvalid, exchange.ErrContradicts, codec.Clip(slot), codec.Clip(id))
	}
	offer, _ := strconv.ParseUint(number, 10, strconv.IntSize-1)
	return int(offer), nil
}

// CheckSubject refuses a message that was not published on a subject of its slot's job:
// NS.slot.<lane>.<job> or NS.timer.due.<queue>.<job>. The server checks to which subject a login
// publishes, but not the headers. Without this check, a login that may publish for one job could
// start any other. A fired message must come from the timer of its slot: a timer chooses the subject
// on which the server publishes its message. Its errors wrap ErrInvalid and ErrContradicts.
func (m Message) CheckSubject(subject string) error {
	const dot = "."
	name := strings.LastIndex(subject, dot)
	queue := strings.LastIndex(subject[:max(name, 0)], dot)
	namespace, kind, _ := strings.Cut(subject[:max(queue, 0)], dot)
	switch {
	case (kind != "slot" && kind != "timer.due") || subject[name+1:] != m.Slot.Job:
		return fmt.Errorf("%w message: %w: it names slot %q, and was published on %q", job.ErrInvalid, exchange.ErrContradicts, codec.Clip(m.Slot.ID()), codec.Clip(subject))
	case kind == "timer.due" && (m.Slot.Token == "" || m.Scheduler != TimerSubject(namespace, m.Slot)):
		return fmt.Errorf("%w message: %w: it names slot %q, and was scheduled by %q", job.ErrInvalid, exchange.ErrContradicts, codec.Clip(m.Slot.ID()), codec.Clip(m.Scheduler))
	}
	return nil
}

// TimerSubject returns the subject of the timer of a triggered run, or of one of its shards.
func TimerSubject(namespace string, slot job.Slot) string {
	// The key is JOB.t.TOKEN with the token escaped. The key of a shard has one more token.
	return namespace + ".timer.set." + strings.Replace(slot.Key(), ".t.", ".", 1)
}

// ParseMessage reads the headers of a slot message. The slot is that of Cronce-Slot, since the
// message ID differs if the slot was offered again. If the message ID is that of another slot, the
// error wraps ErrContradicts. All errors wrap ErrInvalid. The caller also calls CheckSubject.
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
		m.Traceparent = trace // a longer one is invalid
	}
	node := get(HeaderNode)
	m.Node = strings.ToValidUTF8(node[:min(len(node), codec.MaxWord)], "")
	m.CaughtUp, m.Backfill = get(HeaderCaughtUp) != "", get(HeaderBackfill) != ""
	m.Chained, m.Event = get(HeaderChained) != "", get(HeaderEvent) != ""
	m.Scheduler = get(HeaderScheduler)
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
			if *dst, err = codec.ParseInstant(v); err != nil {
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
		m.Due = m.Slot.At // no slot is due before its instant
	}
	return m, nil
}
