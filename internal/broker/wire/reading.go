package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/cronce-io/cronce/job"
)

// reading is one request to a stream's leader for one message.
type reading struct {
	Question
	Wire
	api     string
	request map[string]any
	done    func(Entry, error)
}

// readLast requests the last message on subject from the stream's leader. It calls done once, on
// any goroutine, with the answer or when ctx ends. done must not block. readLast does not use
// direct gets, because any replica answers those: right after an acknowledged write, 60 % of them
// were stale on three replicas.
func (w Wire) readLast(ctx context.Context, stream, subject string, done func(Entry, error)) {
	w.message(ctx, stream, map[string]any{"last_by_subj": subject}, done)
}

// Last returns the last message on subject, which it requests from the stream's leader, or from any
// replica if the login may use only direct gets. If there is none, the error is ErrNothing.
func (w Wire) Last(ctx context.Context, stream, subject string) (Entry, error) {
	var e Entry
	err := w.orDirect(stream, func() (err error) {
		e, err = Await(func(done func(Entry, error)) { w.readLast(ctx, stream, subject, done) })
		return err
	}, func() (err error) {
		e, err = w.lastDirect(ctx, stream, subject)
		return err
	})
	return e, err
}

// LastUntilAnswered is Last, repeated until it is answered or ctx ends. title names what it reads,
// for errors.
func (w Wire) LastUntilAnswered(ctx context.Context, title, stream, subject string) (e Entry, err error) {
	err = w.UntilAnswered(ctx, title, func() (err error) {
		e, err = w.Last(ctx, stream, subject)
		return err
	})
	return e, err
}

// First asks any replica for the oldest message on a subject until it is answered or ctx ends. found
// has that one message, or is empty if there is none.
func (w Wire) First(ctx context.Context, stream, subject string) (found []Entry, err error) {
	err = w.UntilAnswered(ctx, "stream "+stream, func() (err error) {
		found, _, err = w.Get(ctx, stream, map[string]any{"seq": 1, "batch": 1, "next_by_subj": subject})
		return err
	})
	return found, err
}

// Next requests from the stream's leader the first message that matches filter, at or
// after the sequence from.
func (w Wire) Next(ctx context.Context, stream, filter string, from uint64) (Entry, error) {
	return Await(func(done func(Entry, error)) {
		w.message(ctx, stream, map[string]any{"seq": from, "next_by_subj": filter}, done)
	})
}

// message sends one request to the stream's leader.
func (w Wire) message(ctx context.Context, stream string, request map[string]any, done func(Entry, error)) {
	r := &reading{Wire: w, api: w.API("STREAM.MSG.GET." + stream), request: request, done: done}
	r.Asker, r.ctx, r.FailDenied = r, ctx, true
	w.Transport.Ask(&r.Question)
}

func (r *reading) Subject() string { return r.api }

func (r *reading) Compose(m *nats.Msg) {
	m.Subject = r.api
	m.Data, _ = json.Marshal(r.request) // cannot fail for strings and numbers
}

func (r *reading) Answer(m *nats.Msg, err error) {
	if err != nil {
		r.done(Entry{}, err)
		return
	}
	r.done(r.read(m))
}

func (r *reading) read(reply *nats.Msg) (Entry, error) {
	if len(reply.Data) == 0 && reply.Header.Get("Status") == "503" {
		return Entry{}, nats.ErrNoResponders
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
		return Entry{}, fmt.Errorf("unreadable answer of the broker: %w", err)
	}
	switch m := answer.Message; {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return Entry{}, ErrNothing
	case answer.Error != nil:
		return Entry{}, answer.Error
	case m == nil:
		return Entry{}, errors.New("unreadable answer of the broker: no message in it")
	default:
		e := Entry{Subject: m.Subject, Revision: m.Seq, Time: r.Stamped(m.Time), Data: m.Data}
		var err error
		if len(m.Header) > 0 {
			e.Header, err = nats.DecodeHeadersMsg(m.Header)
		}
		return e, err
	}
}

const (
	// getSize and getBytes bound the answers to one Get. They are large because the broker counts
	// the remaining matches for each request. That takes 0.2 s if 600,000 keys match a filter.
	getSize  = 10_000
	getBytes = 8 << 20

	// getIdle is how long the broker may pause between the answers to a Get. If a Get times out,
	// the broker may pause twice as long in the next one, up to mostIdle.
	getIdle  = 3 * time.Second
	mostIdle = 30 * time.Second
)

// idleLimit is the current limit of a pause between the answers to a Get. It is safe for concurrent
// use.
type idleLimit struct{ n atomic.Int64 }

func (p *idleLimit) now() time.Duration { return max(getIdle, time.Duration(p.n.Load())) }

// learn adjusts the limit to the result of a Get.
func (p *idleLimit) learn(err error) {
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
	Question
	Wire
	api     string
	request []byte
	found   []Entry
	more    bool
	err     error
	done    chan struct{}
}

// Get asks any replica for many messages with one request, and collects the answers. more reports
// whether there are further ones.
func (w Wire) Get(ctx context.Context, stream string, question map[string]any) (_ []Entry, more bool, err error) {
	if question["batch"] == nil {
		question["batch"] = getSize
	}
	question["max_bytes"] = cmp.Or(w.BatchBytes, getBytes)
	b := &batchReading{Wire: w, api: w.API("DIRECT.GET." + stream), done: make(chan struct{})}
	if b.request, err = json.Marshal(question); err != nil {
		return nil, false, err
	}
	b.Asker, b.ctx, b.many, b.FailDenied, b.limit = b, ctx, true, true, w.Transport.idle.now()
	w.Transport.Ask(&b.Question)
	<-b.done
	w.Transport.idle.learn(b.err)
	if b.err != nil {
		return nil, errors.Is(b.err, errTooMany), b.err
	}
	return b.found, b.more, nil
}

func (b *batchReading) Subject() string { return b.api }

func (b *batchReading) Compose(m *nats.Msg) { m.Subject, m.Data = b.api, b.request }

// Answer collects the answers until the last one.
func (b *batchReading) Answer(m *nats.Msg, err error) {
	if m == nil {
		b.err = err
		close(b.done)
		return
	}
	over, more, err := b.add(m)
	if (over || err != nil) && b.Transport.end(&b.Question) {
		b.more, b.err = more, err
		close(b.done)
	}
}

func (b *batchReading) add(m *nats.Msg) (over, more bool, err error) {
	switch m.Header.Get("Status") {
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
		_, err := b.direct(m)
		return true, false, err
	}
}

// A login may have the permission to read only some subjects of a stream. The server can check
// this only for direct gets, because their request subject contains the subject to read. Any
// replica answers a direct get, so such a login may read stale values.

// orDirect calls read, whose request can read any subject of the stream. If the login has no
// permission for that, orDirect calls direct, which reads with direct gets. From then on it calls
// only direct for this stream.
func (w Wire) orDirect(stream string, read, direct func() error) error {
	if w.readsDirectly(stream) {
		return direct()
	}
	err := read()
	if !errors.Is(err, job.ErrDenied) {
		return err
	}
	if failed := direct(); failed == nil || errors.Is(failed, ErrNothing) {
		w.ReadDirectly(stream)
		return failed
	}
	return err
}

// ReadDirectly records that this login may read the stream only with direct gets.
func (w Wire) ReadDirectly(stream string) { w.Transport.directOnly.Store(w.Prefix+stream, true) }

func (w Wire) readsDirectly(stream string) bool {
	_, only := w.Transport.directOnly.Load(w.Prefix + stream)
	return only
}

// lastDirect asks any replica for the last message on subject, in a request that names the
// subject.
func (w Wire) lastDirect(ctx context.Context, stream, subject string) (Entry, error) {
	attempt, cancel := context.WithTimeoutCause(ctx, AttemptTimeout, nats.ErrTimeout)
	defer cancel()
	began := time.Now()
	api := w.API("DIRECT.GET." + stream + "." + subject)
	m, err := w.Request(attempt, &nats.Msg{Subject: api})
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = nats.ErrTimeout
		}
		return Entry{}, w.WithComplaints(api, began, err)
	}
	return w.direct(m)
}

// latestDirect reads the last message of each key, with one request for each key.
func (b Bucket) latestDirect(ctx context.Context, keys []string) (found []Entry, err error) {
	const atOnce = 64
	all := make([]Entry, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, key := range keys {
		group.Go(func() error {
			err := b.UntilAnswered(ctx, b.title(key), func() (err error) {
				all[i], err = b.lastDirect(ctx, b.Stream, b.Subject(key))
				return err
			})
			if errors.Is(err, ErrNothing) {
				return nil
			}
			return err
		})
	}
	err = group.Wait()
	for _, e := range all {
		if e.Revision > 0 {
			found = append(found, e)
		}
	}
	return found, err
}

// UntilAnswered repeats a read until it is answered (perhaps with ErrNothing), the server denies it,
// or ctx ends. title names what is read, for errors.
func (w Wire) UntilAnswered(ctx context.Context, title string, read func() error) error {
	for began, pause := time.Now(), NewBackoff(); ; {
		err := read()
		switch {
		case err == nil, errors.Is(err, ErrNothing):
			return err
		case Classify(err) != Unanswered, errors.Is(err, job.ErrDenied):
			return fmt.Errorf("read %s: %w", title, err)
		case !Wait(ctx, pause.NextBackOff()):
			return fmt.Errorf("read %s: %w (after %v): %w", title, job.ErrUnknown, time.Since(began).Round(time.Millisecond), err)
		}
	}
}

// OnAllCores returns f of each entry, in order.
func OnAllCores[T any](found []Entry, f func(Entry) T) []T {
	all := make([]T, len(found))
	var parts sync.WaitGroup
	size := max(1, (len(found)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for part := range slices.Chunk(all, size) {
		entries := found[:len(part)]
		found = found[len(part):]
		parts.Go(func() {
			for i, e := range entries {
				part[i] = f(e)
			}
		})
	}
	parts.Wait()
	return all
}

// Ahead iterates over seq. It computes the next value while the caller uses the current one.
func Ahead[T any](ctx context.Context, seq func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		type item struct {
			value T
			err   error
		}
		ctx, cancel := context.WithCancel(ctx)
		items, enough := make(chan item), make(chan struct{})
		go func() {
			defer close(items)
			for value, err := range seq(ctx) {
				select {
				case items <- item{value, err}:
				case <-enough: // ctx is not checked here: the caller must receive its error
					return
				}
			}
		}()
		defer func() {
			close(enough)
			cancel()
			for range items { // until the goroutine ends
			}
		}()
		for i := range items {
			if !yield(i.value, i.err) {
				return
			}
		}
	}
}
