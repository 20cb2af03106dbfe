package facts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// TestMain also runs the server that one of the tests kills.
func TestMain(m *testing.M) {
	if config := os.Getenv(memberEnv); config != "" {
		os.Exit(runMember(config))
	}
	natstest.WaitMore(8)
	code := m.Run()
	shared.end()
	os.Exit(code)
}

// three returns the cluster that tests share if they leave it as they found it. Each test has its own
// stream there, named after its fact.
var three = sync.OnceValue(func() *natstest.Cluster { return natstest.RunCluster(&shared) })

// onThree returns a client of that cluster. The end of the test deletes the stream.
func onThree(t *testing.T, stream string) jetstream.JetStream {
	t.Helper()
	js := natstest.JetStream(t, natstest.Connect(t, three().URL()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		if err := js.DeleteStream(ctx, stream); err != nil {
			t.Errorf("delete stream %s: %v", stream, err)
		}
	})
	return js
}

// shared owns what several tests use, and what outlives the test that starts it.
var shared suite

// suite has the methods of testing.TB that natstest calls. The embedded interface is nil.
type suite struct {
	testing.TB
	ends []func()
}

func (s *suite) Helper()                   {}
func (s *suite) Cleanup(end func())        { s.ends = append(s.ends, end) }
func (s *suite) Fatal(args ...any)         { panic(fmt.Sprint(args...)) }
func (s *suite) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func (s *suite) TempDir() string {
	dir, err := os.MkdirTemp("", "cronce-facts")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end calls the cleanups, the last one first.
func (s *suite) end() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}

// limit bounds every wait. Only a test that hangs takes as long.
const limit = natstest.Patience

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func stream(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	s, err := js.CreateStream(within(t, limit), cfg)
	if err != nil {
		t.Fatalf("create stream %s: %v", cfg.Name, err)
	}
	return s
}

// queue creates a work queue on the subjects that begin with its name.
func queue(t *testing.T, js jetstream.JetStream, name string, replicas int) jetstream.Stream {
	t.Helper()
	return stream(t, js, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Retention: jetstream.WorkQueuePolicy, Replicas: replicas,
	})
}

// worker creates the consumer of a work queue.
func worker(t *testing.T, s jetstream.Stream, cfg jetstream.ConsumerConfig) jetstream.Consumer {
	t.Helper()
	cfg.Durable, cfg.AckPolicy = "worker", jetstream.AckExplicitPolicy
	c, err := s.CreateConsumer(within(t, limit), cfg)
	if err != nil {
		t.Fatalf("create a consumer of %s: %v", s.CachedInfo().Config.Name, err)
	}
	return c
}

func bucket(t *testing.T, js jetstream.JetStream, cfg jetstream.KeyValueConfig) jetstream.KeyValue {
	t.Helper()
	kv, err := js.CreateKeyValue(within(t, limit), cfg)
	if err != nil {
		t.Fatalf("create bucket %s: %v", cfg.Bucket, err)
	}
	return kv
}

// publish stores an empty message, which must succeed.
func publish(t *testing.T, js jetstream.JetStream, subject string, opts ...jetstream.PublishOpt) *jetstream.PubAck {
	t.Helper()
	ack, err := js.Publish(within(t, limit), subject, nil, opts...)
	if err != nil {
		t.Fatalf("publish %s: %v", subject, err)
	}
	return ack
}

// publishAll sends all subjects without waiting in between, and returns the
// errors that came back, one for each.
func publishAll(t *testing.T, js jetstream.JetStream, subjects []string, opts ...jetstream.PublishOpt) []error {
	t.Helper()
	futures := make([]jetstream.PubAckFuture, len(subjects))
	for i, subject := range subjects {
		var err error
		if futures[i], err = js.PublishAsync(subject, nil, append(opts, jetstream.WithStallWait(limit))...); err != nil {
			t.Fatalf("publish %s: %v", subject, err)
		}
	}
	errs := make([]error, len(futures))
	for i, f := range futures {
		select {
		case <-f.Ok():
		case errs[i] = <-f.Err():
		case <-within(t, limit).Done():
			t.Fatalf("publish %s: no answer in %v", subjects[i], limit)
		}
	}
	return errs
}

// next waits for a message, through restarts and changes of leadership. Its requests are short, because
// one that was lost with a leader must end soon.
func next(t *testing.T, c jetstream.Consumer) jetstream.Msg {
	t.Helper()
	var m jetstream.Msg
	natstest.Eventually(t, "a message", func() (done bool) {
		var err error
		m, err = c.Next(jetstream.FetchMaxWait(250 * time.Millisecond))
		return err == nil
	})
	return m
}

func doubleAck(t *testing.T, m jetstream.Msg) {
	t.Helper()
	if err := m.DoubleAck(within(t, limit)); err != nil {
		t.Fatalf("ack %s: %v", m.Subject(), err)
	}
}

// messages returns how many messages the stream has.
func messages(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(within(t, limit))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

// code returns the server's code of an error, or 0 for no error and for an error of the client.
func code(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode
	}
	return 0
}

// Codes of the server, some of which nats.go has no name for.
const (
	wrongLastSequence         jetstream.ErrorCode = 10071
	storeFailed               jetstream.ErrorCode = 10077
	duplicateInFlight         jetstream.ErrorCode = 10158
	wrongLastSequenceInFlight jetstream.ErrorCode = 10164 // another write to the key is in flight
	ttlInvalid                jetstream.ErrorCode = 10165
)

// put stores a key with a time to live by a plain message, as kv writes do.
func put(t *testing.T, js jetstream.JetStream, subject, value, ttl string, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(value)
	m.Header.Set(jetstream.MsgTTLHeader, ttl)
	return js.PublishMsg(within(t, limit), m, opts...)
}

// stepDown asks the leader of a stream or a consumer to hand over, to the
// preferred server if one is named, and reports whether it does.
func stepDown(nc *nats.Conn, kind, name, preferred string) bool {
	var body []byte
	if preferred != "" {
		body = fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, preferred)
	}
	var answer server.ApiResponse
	m, err := nc.Request("$JS.API."+kind+".LEADER.STEPDOWN."+name, body, 5*time.Second)
	return err == nil && json.Unmarshal(m.Data, &answer) == nil && answer.Error == nil
}

// lead makes the server the leader of a stream. The change takes a moment, so lead does not repeat the
// request at once.
func lead(t *testing.T, nc *nats.Conn, stream, server string) {
	t.Helper()
	js := natstest.JetStream(t, nc)
	var asked time.Time
	natstest.Eventually(t, server+" to lead stream "+stream, func() bool {
		s, err := js.Stream(within(t, time.Second), stream)
		if err == nil && s.CachedInfo().Cluster.Leader == server {
			return true
		}
		if time.Since(asked) > 2*time.Second {
			asked = time.Now()
			stepDown(nc, "STREAM", stream, server)
		}
		return false
	})
}
