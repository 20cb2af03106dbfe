package core

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// StreamEvent is a message of a user's stream. Each such message starts a run of a job.
type StreamEvent struct {
	// Stream and Created are the stream's name and its creation time. A stream that was
	// deleted and created again counts from 1 again, so the name alone is not unique.
	Stream  string
	Created time.Time

	// Sequence is that of the message in the stream, and Stored when the stream stored it.
	Sequence uint64
	Stored   time.Time

	// ID is the message's Nats-Msg-Id, or empty.
	ID string

	// Size is the length of the message's data, in bytes.
	Size int

	// SequenceOnly is true if an older program may have published the message's run already. Such
	// a program used the sequence alone as the token of a message without an ID.
	SequenceOnly bool
}

// Token returns the token of the run that the message starts: its Nats-Msg-Id, or
// <stream>-<creation>-<sequence> if it has none, with the creation in nanoseconds since 1970. A
// text that is not a valid token is replaced by its digest.
func (e StreamEvent) Token() string {
	name := strings.TrimSpace(e.ID)
	if name == "" {
		name = strconv.FormatUint(e.Sequence, 10)
		if !e.SequenceOnly {
			name = e.Stream + "-" + strconv.FormatInt(e.Created.UnixNano(), 10) + "-" + name
		}
	}
	if job.ValidateToken(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// EventRun returns the slot messages of the run that a stream's message starts. The run is due
// when its message was stored. It is split by the plan in force then, so that a message that is
// delivered again after an edit has the same slots. If the message is too large for a payload,
// the run is Refused.
func EventRun(e plans.Entry, ev StreamEvent) []Message {
	m := Message{Slot: job.Slot{Job: e.Job.Name, Token: ev.Token()}, JobRevision: e.Revision, Due: ev.Stored, Event: true}
	if ev.Size > job.MaxPayload {
		m.Refused = fmt.Sprintf("message %d of stream %s has %d bytes: a payload may have at most %d", ev.Sequence, ev.Stream, ev.Size, job.MaxPayload)
		return []Message{m}
	}
	return m.shards(e.PlanOf(ev.Stored).Shards)
}

// OnConsumer is a durable consumer that receives the messages of one plan of a job. Its metadata
// on the broker names the plan.
type OnConsumer struct {
	Stream, Name string

	// On is the plan's On, and From is when the plan begins. From is zero if an older program
	// created the consumer. Such a program used one consumer for all plans of a stream.
	On   job.On
	From time.Time

	// SequenceOnlyUntil is set for a consumer of an older program. The run of a message that was
	// stored up to then is named by the sequence alone. Some of these messages may have been
	// stored before From.
	SequenceOnlyUntil time.Time

	// Created and StreamCreated are the creation times of the consumer and of its stream. They
	// show whether either was deleted and created again under the same name.
	Created, StreamCreated time.Time

	// WorkQueue is true if the stream is a work queue: acked messages are removed, and the
	// subjects of two consumers must not overlap.
	WorkQueue bool
}

// OnState is the progress of an OnConsumer.
type OnState struct {
	// Created is that of the OnConsumer.
	Created time.Time

	// Pending is the number of messages that were not delivered yet. Unacked is the number of
	// those that were delivered and not acked.
	Pending, Unacked int

	// AckedDelivery and AckedSequence are the ack floor, as the number of a delivery and as a
	// sequence of the stream: everything up to them is acked.
	AckedDelivery, AckedSequence uint64
}

// AfterEnd holds the messages that were delivered although they were stored after the end of the
// plan. They are never acked.
type AfterEnd struct {
	Seen map[uint64]bool // by sequence

	// First is the number of the first of these deliveries that is known (its consumer sequence).
	// Zero: none is.
	First uint64
}

// IsDrained reports whether all messages of a plan that has ended are acked. A consumer delivers
// in the order of the stream, so when it has delivered a message from after the end of the plan,
// it has delivered all messages of the plan.
func (s OnState) IsDrained(after AfterEnd) bool {
	for sequence := range after.Seen {
		if s.AckedSequence+1 >= sequence {
			return true
		}
	}
	return s.Pending == 0 && s.Unacked == 0 || after.First > 0 && s.AckedDelivery+1 >= after.First
}

// SeemsDrained reports whether no more messages are unacked than were delivered from after the end. This
// is no proof: if the stream has deleted some of the latter, the server does not count them, and a message
// of the plan may be unacked in their place.
func (s OnState) SeemsDrained(after AfterEnd) bool {
	return len(after.Seen) > 0 && s.Unacked <= len(after.Seen)
}

// IsClosed reports whether the channel is closed, which means that its event has happened.
func IsClosed(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}

// TrySend sends a value if the channel has room, and drops it otherwise.
func TrySend[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}
