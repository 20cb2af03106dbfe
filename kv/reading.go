package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// reading is one request to a stream's leader for one message.
type reading struct {
	question
	wire
	api     string
	request map[string]any
	told    func(entry, error)
}

// look requests the last message on subject from the stream's leader, until it is answered
// or ctx ends. It does not use direct gets, because any replica answers those: right after
// an acknowledged write, 60 % of them were stale on three replicas. look calls told once,
// on any goroutine. told must not block.
func (w wire) look(ctx context.Context, stream, subject string, told func(entry, error)) {
	w.message(ctx, stream, map[string]any{"last_by_subj": subject}, told)
}

// last is look for callers that block until the answer.
func (w wire) last(ctx context.Context, stream, subject string) (entry, error) {
	return awaitEntry(func(told func(entry, error)) { w.look(ctx, stream, subject, told) })
}

// next requests from the stream's leader the first message that matches filter, at or
// after the sequence from.
func (w wire) next(ctx context.Context, stream, filter string, from uint64) (entry, error) {
	return awaitEntry(func(told func(entry, error)) {
		w.message(ctx, stream, map[string]any{"seq": from, "next_by_subj": filter}, told)
	})
}

func (w wire) message(ctx context.Context, stream string, request map[string]any, told func(entry, error)) {
	r := &reading{wire: w, api: w.api("STREAM.MSG.GET." + stream), request: request, told: told}
	r.asker, r.ctx, r.endsDenied = r, ctx, true
	w.transport.ask(&r.question)
}

func awaitEntry(ask func(told func(entry, error))) (e entry, err error) {
	done := make(chan struct{})
	ask(func(found entry, failed error) {
		e, err = found, failed
		close(done)
	})
	<-done
	return e, err
}

func (r *reading) subject() string { return r.api }

func (r *reading) compose(m *nats.Msg) {
	m.Subject = r.api
	m.Data, _ = json.Marshal(r.request) // cannot fail for strings and numbers
}

func (r *reading) answer(m *nats.Msg, err error) {
	if err != nil {
		r.told(entry{}, err)
		return
	}
	r.told(r.read(m))
}

func (r *reading) read(reply *nats.Msg) (entry, error) {
	if len(reply.Data) == 0 && reply.Header.Get("Status") == "503" {
		return entry{}, nats.ErrNoResponders
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return entry{}, fmt.Errorf("unreadable answer of the broker: %w", err)
	}
	switch m := answer.Message; {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return entry{}, errNothing
	case answer.Error != nil:
		return entry{}, answer.Error
	case m == nil:
		return entry{}, errors.New("unreadable answer of the broker: no message in it")
	default:
		e := entry{subject: m.Subject, revision: m.Seq, time: r.stamped(m.Time), data: m.Data}
		var err error
		if len(m.Header) > 0 {
			e.header, err = nats.DecodeHeadersMsg(m.Header)
		}
		return e, err
	}
}

const (
	// batchSize and batchBytes bound one batch. They are large because the broker counts
	// the remaining matches for each batch. That takes 0.2 s if 600,000 keys match a filter.
	batchSize  = 10_000
	batchBytes = 8 << 20

	// batchIdle is how long the broker may pause within a batch. If a batch times out, the
	// next one may pause twice as long, up to mostIdle.
	batchIdle = 3 * time.Second
	mostIdle  = 30 * time.Second
)

// patience holds the current limit of a pause within a batch.
type patience struct{ n atomic.Int64 }

func (p *patience) now() time.Duration { return max(batchIdle, time.Duration(p.n.Load())) }

func (p *patience) learn(err error) {
	switch {
	case err == nil:
		p.n.Store(0)
	case errors.Is(err, nats.ErrTimeout):
		p.n.Store(int64(min(2*p.now(), mostIdle)))
	}
}

// batchReading is one request to any replica, with many answers. It is sent once, because
// the answers to two copies could not be told apart.
type batchReading struct {
	question
	wire
	api     string
	request []byte
	found   []entry
	more    bool
	err     error
	done    chan struct{}
}

// get sends one request that has many answers, and collects them.
func (w wire) get(ctx context.Context, stream string, question map[string]any) (_ []entry, more bool, err error) {
	question["batch"], question["max_bytes"] = batchSize, batchBytes
	b := &batchReading{wire: w, api: w.api("DIRECT.GET." + stream), done: make(chan struct{})}
	if b.request, err = json.Marshal(question); err != nil {
		return nil, false, err
	}
	b.asker, b.ctx, b.many, b.endsDenied, b.limit = b, ctx, true, true, w.transport.idle.now()
	w.transport.ask(&b.question)
	<-b.done
	w.transport.idle.learn(b.err)
	if b.err != nil {
		return nil, errors.Is(b.err, errTooMany), b.err
	}
	return b.found, b.more, nil
}

func (b *batchReading) subject() string { return b.api }

func (b *batchReading) compose(m *nats.Msg) { m.Subject, m.Data = b.api, b.request }

// answer collects the answers until the last one.
func (b *batchReading) answer(m *nats.Msg, err error) {
	if m == nil {
		b.err = err
		close(b.done)
		return
	}
	over, more, err := b.add(m)
	if (over || err != nil) && b.transport.take(&b.question) {
		b.more, b.err = more, err
		close(b.done)
	}
}

func (b *batchReading) add(m *nats.Msg) (over, more bool, err error) {
	switch status := m.Header.Get("Status"); status {
	case "":
		e, err := b.direct(m)
		b.found = append(b.found, e)
		return false, false, err
	case "204":
		pending := m.Header.Get("Nats-Num-Pending")
		return true, pending != "" && pending != "0", nil
	case "404":
		return true, false, nil
	case "413":
		return true, true, errTooMany
	case "503":
		return true, false, nats.ErrNoResponders
	default:
		return true, false, fmt.Errorf("direct get: status %s %s", status, m.Header.Get("Description"))
	}
}
