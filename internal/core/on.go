package core

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/job"
)

// StreamEvent is one message of a stream that starts a job.
type StreamEvent struct {
	// Stream and Created are the stream's name and its creation. A stream that is
	// deleted and made anew counts from 1 again: its creation tells the two apart.
	Stream  string
	Created time.Time

	// Sequence is the message's place in the stream, Stored when the stream stored it.
	Sequence uint64
	Stored   time.Time

	// ID is the message's Nats-Msg-Id, empty if it has none.
	ID string

	// Size is the length of its data, in bytes.
	Size int

	// Bare names a message without an ID by its sequence alone, as programs did before
	// the stream belonged into the name: for messages that they may have published.
	Bare bool
}

// Token names the run that the message starts: its Nats-Msg-Id, or
// <stream>-<creation>-<sequence> if it has none, with the creation in nanoseconds since
// 1970. A text that is no token (see ValidateToken) is replaced by a digest of it, so
// that it names one run all the same.
func (e StreamEvent) Token() string {
	name := strings.TrimSpace(e.ID)
	if name == "" {
		name = strconv.FormatUint(e.Sequence, 10)
		if !e.Bare {
			name = e.Stream + "-" + strconv.FormatInt(e.Created.UnixNano(), 10) + "-" + name
		}
	}
	if job.ValidateToken(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256-" + hex.EncodeToString(sum[:])
}

// Started returns the slot messages of the run of e's job that a stream's message
// starts. The run is due since its message was stored, and split as the plan of that
// time says, so that a message that is delivered again after an edit names the same
// slots. A message that is too large to be handed on is a run that cannot be made.
func Started(e Entry, ev StreamEvent) []Message {
	m := Message{Slot: job.Slot{Job: e.Job.Name, Token: ev.Token()}, JobRevision: e.Revision, Due: ev.Stored, Event: true}
	if ev.Size > job.MaxPayload {
		m.Refused = fmt.Sprintf("message %d of stream %s has %d bytes: at most %d are handed on", ev.Sequence, ev.Stream, ev.Size, job.MaxPayload)
		return []Message{m}
	}
	return m.parts(e.planOf(ev.Stored).Shards)
}

// planOf is the plan in force when a message was stored. A work queue may hold messages
// from before the job: those belong to its first plan.
func (e Entry) planOf(stored time.Time) job.Plan {
	if p, ok := e.PlanAt(stored); ok {
		return p.Plan
	}
	return e.Plans()[0].Plan
}

// OnPlans returns the plans by which messages start the job, oldest first. To of the
// last is zero if it is the current plan.
func (e Entry) OnPlans() []PastPlan {
	var plans []PastPlan
	for _, p := range e.Plans() {
		if !p.Plan.On.IsZero() {
			plans = append(plans, p)
		}
	}
	return plans
}

// OnConsumer is a durable consumer that takes the messages of one plan for a job. Its
// metadata on the broker says which plan that is.
type OnConsumer struct {
	Stream, Name string

	// On is what it takes, From the beginning of its plan. From is zero for a consumer
	// that was made by a program which kept one for all plans of a stream.
	On   job.On
	From time.Time

	// Bare is set for a consumer that such a program made: messages that were stored up
	// to then are named by their sequence alone, and it may hold some from before From.
	Bare time.Time

	// Created tells the consumer from one of the same name that is made later, and
	// StreamCreated the stream.
	Created, StreamCreated time.Time

	// WorkQueue says that its stream is a work queue: what is acked is removed, and two
	// consumers never want the same subject.
	WorkQueue bool
}

// OnState is how far an OnConsumer has come.
type OnState struct {
	// Created is OnConsumer's.
	Created time.Time

	// Pending messages were not delivered yet. Unacked ones were delivered and are not
	// acked.
	Pending, Unacked int

	// The first Delivered deliveries are all acked, and all messages delivered up to the
	// sequence Floor.
	Delivered, Floor uint64
}

// Beyond are the messages seen, by their sequences, that were stored after the end of a
// plan. Nobody acks them.
type Beyond struct {
	Seen map[uint64]bool

	// First is the number of the first delivery among them, counted by the consumer;
	// 0 while it is not known.
	First uint64
}

// IsDrained reports whether all messages of a plan that is over are acked. A consumer
// delivers in the order of the stream: when it has delivered a message that was stored
// after the plan's end, it has delivered all of the plan.
func (s OnState) IsDrained(b Beyond) bool {
	for sequence := range b.Seen {
		if s.Floor+1 >= sequence {
			return true
		}
	}
	delivered := s.Pending == 0 || len(b.Seen) > 0
	return delivered && s.Unacked <= len(b.Seen) || b.First > 0 && s.Delivered+1 >= b.First
}
