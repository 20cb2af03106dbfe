package kv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// attemptTimeout bounds one question to the broker, so that a question that
// was lost with a leader is asked again of the next one soon.
const attemptTimeout = time.Second

// wire is the broker as this package speaks to it: the connection and the
// prefix under which its JetStream listens (a domain, an imported account).
const defaultPrefix = jetstream.DefaultAPIPrefix

type wire struct {
	js     jetstream.JetStream
	pipe   *pipe  // for writes
	prefix string // of API subjects, with the last dot
	stamp  func(time.Time) time.Time
}

func newWire(js jetstream.JetStream) wire {
	w := wire{js: js, pipe: newPipe(js.Conn()), prefix: defaultPrefix}
	switch o := js.Options(); {
	case o.Domain != "":
		w.prefix = "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		w.prefix = strings.TrimSuffix(o.APIPrefix, ".") + "."
	}
	return w
}

// stamped is a timestamp of the broker's as the store's owner reads it.
func (w wire) stamped(t time.Time) time.Time {
	if w.stamp == nil {
		return t
	}
	return w.stamp(t)
}

func (w wire) conn() *nats.Conn { return w.js.Conn() }

// entry is a stored message: the last one of its key, or one of a pass.
type entry struct {
	subject  string
	revision uint64
	time     time.Time
	header   nats.Header
	data     []byte
}

const (
	headerOperation = "KV-Operation"
	headerMarker    = "Nats-Marker-Reason"
	headerNonce     = "Cronce-Nonce"
)

// gone reports whether the entry is a marker that stands where a value was.
func (e entry) gone() bool {
	op := e.header.Get(headerOperation)
	return op == "DEL" || op == "PURGE" || e.header.Get(headerMarker) != ""
}

// same reports whether the entry holds exactly what m holds. Every message
// carries a nonce, in its value or (a marker has none) in a header.
func (e entry) same(m *nats.Msg) bool {
	return string(e.data) == string(m.Data) && e.header.Get(headerNonce) == m.Header.Get(headerNonce) &&
		e.header.Get(headerOperation) == m.Header.Get(headerOperation)
}

var errNothing = errors.New("nothing is stored there")

// last asks the stream's leader, once, for the last message on subject. Direct
// gets are answered by any replica: right after an acknowledged write, 60 % of
// those were stale on three replicas.
func (w wire) last(ctx context.Context, stream, subject string) (entry, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return entry{}, err
	}
	reply, err := w.conn().RequestWithContext(ctx, w.api("STREAM.MSG.GET."+stream), request)
	if err != nil {
		return entry{}, w.because(w.api("STREAM.MSG.GET."+stream), err)
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
		e := entry{subject: m.Subject, revision: m.Seq, time: w.stamped(m.Time), data: m.Data}
		if len(m.Header) > 0 {
			e.header, err = nats.DecodeHeadersMsg(m.Header)
		}
		return e, err
	}
}

// api is the subject of an operation of the JetStream API.
func (w wire) api(operation string) string { return w.prefix + operation }

// publish sends m once, on the condition that revision is the last one of its
// subject, and waits for the answer.
func (w wire) publish(ctx context.Context, stream string, m *nats.Msg, revision uint64) (won uint64, err error) {
	done := make(chan struct{})
	expect(m, stream, revision)
	w.pipe.ask(ctx, m, func(answer *nats.Msg, failed error) {
		won, err = w.stored(m, answer, failed)
		close(done)
	})
	<-done
	return won, err
}

// expect puts the condition on m, unless it is there: then m has been sent, and may
// still be read.
func expect(m *nats.Msg, stream string, revision uint64) {
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	if m.Header[jetstream.ExpectedStreamHeader] == nil {
		m.Header[jetstream.ExpectedStreamHeader] = []string{stream}
		m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(revision, 10)}
	}
}

// stored reads what was answered to m: the revision at which it is stored.
func (w wire) stored(m, answer *nats.Msg, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	a, err := pubAck(answer)
	if err != nil {
		return 0, err
	}
	return a.seq, w.misplaced(m.Subject, a.domain)
}

// misplaced is an error when a message was stored in another JetStream domain than the one
// that is meant: a subject that is not prefixed crosses a leaf node.
func (w wire) misplaced(subject, domain string) error {
	if want := w.js.Options().Domain; want != "" && domain != want {
		return fmt.Errorf("%w: stored in domain %q, not %q: two streams listen on %s", jetstream.ErrInvalidOption, domain, want, subject)
	}
	return nil
}

// batch asks any replica for the next messages that match filter (empty: all,
// which spares the broker to count matches for every batch), from the sequence
// from on (or, with since, from that time on). more says whether there
// are further ones.
func (w wire) batch(ctx context.Context, stream, filter string, from uint64, since time.Time) (_ []entry, more bool, err error) {
	question := map[string]any{}
	if filter != "" {
		question["next_by_subj"] = filter
	}
	if since.IsZero() {
		question["seq"] = from
	} else {
		question["start_time"] = since.UTC()
	}
	return w.get(ctx, stream, question)
}

// few asks any replica for the last message of each subject that matches filter,
// oldest first. The broker finds them by its index, where batch has it look through
// the stream. complete is false if there are too many for that, or for one answer.
func (w wire) few(ctx context.Context, stream, filter string) (found []entry, complete bool, err error) {
	found, more, err := w.get(ctx, stream, map[string]any{"multi_last": []string{filter}})
	if errors.Is(err, errTooMany) {
		return nil, false, nil
	}
	return found, !more, err
}

// errTooMany is the broker's answer to few when more than 1,024 subjects match.
var errTooMany = errors.New("too many results")

// get puts one question of many answers.
func (w wire) get(ctx context.Context, stream string, question map[string]any) (_ []entry, more bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	idle := time.AfterFunc(batchIdle, cancel)
	defer idle.Stop()
	question["batch"], question["max_bytes"] = batchSize, batchBytes
	request, err := json.Marshal(question)
	if err != nil {
		return nil, false, err
	}
	inbox := w.conn().NewInbox()
	sub, err := w.conn().SubscribeSync(inbox)
	if err != nil {
		return nil, false, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := w.conn().PublishRequest(w.api("DIRECT.GET."+stream), inbox, request); err != nil {
		return nil, false, err
	}
	var found []entry
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, false, w.because(w.api("DIRECT.GET."+stream), err)
		}
		idle.Reset(batchIdle)
		switch status := m.Header.Get("Status"); status {
		case "":
			e, err := w.direct(m)
			if err != nil {
				return nil, false, err
			}
			found = append(found, e)
		case "204":
			pending := m.Header.Get("Nats-Num-Pending")
			return found, pending != "" && pending != "0", nil
		case "404":
			return found, false, nil
		case "413":
			return nil, true, errTooMany
		default:
			return nil, false, fmt.Errorf("direct get: status %s %s", status, m.Header.Get("Description"))
		}
	}
}

const (
	// batchSize and batchBytes bound what is asked for at once. For each batch
	// the broker counts what is left, which takes it 0.2 s when 600,000 keys
	// match a filter: so they are large.
	batchSize  = 10_000
	batchBytes = 8 << 20

	// batchIdle is how long the broker may pause within a batch.
	batchIdle = 3 * time.Second
)

// direct reads the answer to a direct get.
func (w wire) direct(m *nats.Msg) (entry, error) {
	revision, err := strconv.ParseUint(m.Header.Get(jetstream.SequenceHeader), 10, 64)
	if err != nil {
		return entry{}, fmt.Errorf("direct get: sequence: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get(jetstream.TimeStampHeaer))
	if err != nil {
		return entry{}, fmt.Errorf("direct get: time: %w", err)
	}
	return entry{m.Header.Get(jetstream.SubjectHeader), revision, w.stamped(at), m.Header, m.Data}, nil
}
