package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/natsconn/embed"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
	"github.com/cronce-io/cronce/lab/conformance"
)

const (
	namespace = "cronce"

	// lease is the lease of the namespace. It is longer than the shortest that is allowed, because a
	// client that pauses for a lease on a busy machine loses its trust.
	lease = 4 * time.Second

	// patience bounds the wait for an event that must happen. silence is how long a scenario looks for
	// one that must not.
	patience = 30 * time.Second
	silence  = 2 * time.Second
)

// value is a JSON object, as it is stored.
type value = map[string]any

// stage is the environment of one scenario.
type stage struct {
	ctx    context.Context
	dir    string
	server *embed.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	store  *kv.Store
	tap    *tap
	client *conformance.Process
	about  string // the slot that the story is about; empty: none yet

	mu       sync.Mutex
	broken   []Break
	nonces   int
	cleanups []func()
}

// Break is a MUST that the client broke.
type Break struct {
	Must   string `json:"must"`
	Detail string `json:"detail"`
}

// stop is the panic that ends a scenario which cannot go on, because the kit failed or ctx has ended.
type stop struct{ err error }

// leave is the panic that ends a scenario about something that the client does not do.
type leave struct{ why string }

func newStage(ctx context.Context, dir string) (s *stage, err error) {
	s = &stage{ctx: ctx, dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.server, err = embed.Start(ctx, embed.Config{Listen: "127.0.0.1:0", Store: filepath.Join(dir, "store")}); err != nil {
		return s, err
	}
	if s.nc, err = nats.Connect(s.server.URL()); err != nil {
		return s, fmt.Errorf("connect to the server of the scenario: %w", err)
	}
	if s.js, err = jetstream.New(s.nc); err != nil {
		return s, err
	}
	if s.store, err = kv.Open(ctx, s.js, kv.Options{Namespace: namespace, Want: job.Settings{Lease: lease}}); err != nil {
		return s, err
	}
	s.tap, err = newTap(strings.TrimPrefix(s.server.URL(), "nats://"))
	return s, err
}

func (s *stage) close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	if s.client != nil {
		s.client.Kill()
	}
	if s.tap != nil {
		s.tap.Close()
	}
	if s.nc != nil {
		s.nc.Close()
	}
	if s.server != nil {
		_ = s.server.Close()
	}
}

// breaks notes that the client broke a MUST. The scenario goes on.
func (s *stage) breaks(must, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.broken {
		if b.Must == must {
			return // the first is the cause
		}
	}
	s.broken = append(s.broken, Break{must, fmt.Sprintf(format, args...)})
}

// fails notes that the client broke a MUST, and ends the scenario.
func (s *stage) fails(must, format string, args ...any) {
	s.breaks(must, format, args...)
	runtime.Goexit()
}

// must ends the scenario if the kit itself failed.
func (s *stage) must(err error) {
	if err != nil {
		panic(stop{err})
	}
}

// launch starts the client, with handlers for these jobs, and waits until its node is alive.
func (s *stage) launch(jobs string, env ...string) (node string) {
	s.start(jobs, env...)
	return s.node("")
}

// works defines the job "work" and launches the client with a handler for it.
func (s *stage) works() (node string) {
	s.define("work", nil, nil)
	return s.launch("work")
}

func (s *stage) start(jobs string, env ...string) {
	command := s.ctx.Value(commandKey{}).(conformance.Command)
	command.Env = append(append(slices.Concat(os.Environ(), command.Env),
		"CRONCE_UNDER_TEST_SERVER="+s.tap.URL(), "CRONCE_UNDER_TEST_NAMESPACE="+namespace, "CRONCE_UNDER_TEST_NAME=client",
		"CRONCE_UNDER_TEST_JOBS="+jobs, "CRONCE_UNDER_TEST_QUEUES=default", "CRONCE_UNDER_TEST_PRODUCE=1", "CRONCE_UNDER_TEST_CLOCK_OFFSET_MS=0",
		"CRONCE_UNDER_TEST_RECORD="+s.recordFile()), env...)
	process, err := conformance.Start(s.ctx, command)
	s.must(err)
	s.client = process
}

type commandKey struct{}

// node waits until the client has a live node other than the given one, and returns its name.
func (s *stage) node(other string) (name string) {
	s.await("L-1", "a record of the client's node that is alive", func() bool {
		for _, n := range s.nodes() {
			if n.text("state") == "alive" && n.text("node") != other && !strings.HasPrefix(n.text("node"), "peer") {
				name = n.text("node")
				return true
			}
		}
		return false
	})
	return name
}

// stored is a value in a bucket.
type stored struct {
	value    value
	revision uint64
	at       time.Time // the broker's timestamp of the write
}

func (v stored) text(name string) string { t, _ := v.value[name].(string); return t }
func (v stored) number(name string) int  { n, _ := v.value[name].(float64); return int(n) }

// instant returns a member that is a time. Zero: it is none.
func (v stored) instant(name string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, v.text(name))
	return t
}

func (s *stage) nodes() (all []stored) {
	stream, err := s.js.Stream(s.ctx, "KV_"+namespace+"_nodes")
	s.must(err)
	info, err := stream.Info(s.ctx, jetstream.WithSubjectFilter("$KV."+namespace+"_nodes.>"))
	s.must(err)
	for subject := range info.State.Subjects {
		if v := s.get("nodes", strings.TrimPrefix(subject, "$KV."+namespace+"_nodes.")); v.value != nil {
			all = append(all, v)
		}
	}
	return all
}

// get reads a key at the stream's leader.
func (s *stage) get(bucket, key string) stored {
	v, err := s.lookup(bucket, key)
	s.must(err)
	return v
}

// lookup is get for rules of the tap, which run outside the scenario's goroutine.
func (s *stage) lookup(bucket, key string) (stored, error) {
	stream, err := s.js.Stream(s.ctx, "KV_"+namespace+"_"+bucket)
	if err != nil {
		return stored{}, err
	}
	m, err := stream.GetLastMsgForSubject(s.ctx, "$KV."+namespace+"_"+bucket+"."+key)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return stored{}, nil
	} else if err != nil {
		return stored{}, err
	}
	v := stored{revision: m.Sequence, at: m.Time}
	if m.Header.Get("KV-Operation") == "" {
		_ = json.Unmarshal(m.Data, &v.value) // a value that is not an object has no members
	}
	return v, nil
}

func (s *stage) put(bucket, key string, v value, revision uint64) (uint64, error) {
	s.mu.Lock()
	s.nonces++
	v["nonce"] = fmt.Sprintf("peer/%d", s.nonces)
	s.mu.Unlock()
	data, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	ack, err := s.js.Publish(s.ctx, "$KV."+namespace+"_"+bucket+"."+key, data, jetstream.WithExpectLastSequencePerSubject(revision))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// set writes a value over whatever the key has. After a conflict it writes again.
func (s *stage) set(bucket, key string, v value) uint64 {
	for {
		revision, err := s.put(bucket, key, v, s.get(bucket, key).revision)
		if err == nil {
			return revision
		}
		var refused *jetstream.APIError
		if !errors.As(err, &refused) || refused.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
			s.must(err)
		}
	}
}

// remove writes a marker over a key: one with the given header, or else one as a client writes it.
func (s *stage) remove(bucket, key string, header ...string) {
	m := nats.NewMsg("$KV." + namespace + "_" + bucket + "." + key)
	m.Header.Set("KV-Operation", "DEL")
	if len(header) == 2 {
		m.Header = nats.Header{header[0]: {header[1]}}
	}
	_, err := s.js.PublishMsg(s.ctx, m)
	s.must(err)
}

// define puts a job into the registry and returns its revision. members and plan replace or add to the
// members of a default job and of its plan.
func (s *stage) define(name string, members, plan value) uint64 {
	p := value{"schedule": "none", "timezone": "UTC", "dst_gap": "after", "dst_overlap": "first"}
	maps.Copy(p, plan)
	j := value{
		"name": name, "queue": "default", "attempts": 3, "backoff": "100ms", "max_backoff": "1s", "overlap": "allow",
		"catch_up": "latest", "catch_up_max": 100, "plan": p,
	}
	maps.Copy(j, members)
	return s.set("jobs", name, value{"v": 1, "job": j, "owner": "operator", "applied": true, "node": "peer"})
}

// offer publishes a triggered run of a job, whose handler works for ms milliseconds. It returns the
// slot's ID.
func (s *stage) offer(name, token string, ms int, headers ...string) string {
	return s.publish(name, name+":@"+token, ms, headers...)
}

func (s *stage) publish(name, id string, ms int, headers ...string) string {
	return s.send(name, id, value{"ms": ms}, headers...)
}

func (s *stage) send(name, id string, payload value, headers ...string) string {
	if s.about == "" {
		s.about = id
	}
	m := nats.NewMsg(namespace + ".slot.default." + name)
	m.Header.Set("Nats-Msg-Id", id)
	m.Header.Set("Cronce-Slot", id)
	m.Header.Set("Cronce-Node", "peer")
	for i := 0; i+1 < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	m.Data = jsonOf(payload)
	_, err := s.js.PublishMsg(s.ctx, m)
	s.must(err)
	return id
}

// key is the ledger's key of a slot.
func key(id string) string {
	slot, err := job.ParseSlotID(id)
	if err != nil {
		panic(stop{err})
	}
	return slot.Key()
}

func (s *stage) slot(id string) stored { return s.get("ledger", key(id)) }

// running is a record of a run that node has claimed.
func running(id, node string, attempt int) value {
	now := time.Now().UTC()
	return value{
		"v": 1, "id": id, "queue": "default", "state": "running", "attempt": attempt, "max_attempts": 3, "node": node, "published": now,
		"attempts": []value{{"attempt": attempt, "node": node, "started": now}},
	}
}

// ended returns a copy of the record v in another state, with finished.
func ended(v value, state string) value {
	next := maps.Clone(v)
	next["state"], next["finished"] = state, time.Now().UTC()
	return next
}

// retrying returns a copy of the record v whose next attempt is due at the given time.
func retrying(v value, at time.Time) value {
	next := maps.Clone(v)
	next["state"], next["retry_at"] = "retrying", at.UTC()
	return next
}

// await waits until done returns true. If that takes longer than patience, or if the client's process
// ends before, the client breaks the MUST.
func (s *stage) await(must, what string, done func() bool) {
	limit := time.Now().Add(patience)
	for !done() {
		if s.client != nil {
			if why, gone := s.client.Ended(); gone {
				s.fails(must, "waited for %s: the client ended: %s", what, why)
			}
		}
		if time.Now().After(limit) {
			s.fails(must, "waited %v for %s", patience, what)
		}
		s.sleep(20 * time.Millisecond)
	}
}

// never calls bad again and again for the time d. If bad returns a text, which says what is wrong, the
// client breaks the MUST.
func (s *stage) never(must string, d time.Duration, bad func() string) {
	for limit := time.Now().Add(d); ; s.sleep(20 * time.Millisecond) {
		if why := bad(); why != "" {
			s.breaks(must, "%s", why)
			return
		}
		if time.Now().After(limit) {
			return
		}
	}
}

// stays checks for the time d that a key is not written over. broken says what is wrong if it is.
func (s *stage) stays(must string, d time.Duration, bucket, key, broken string) {
	before := s.get(bucket, key).revision
	s.never(must, d, func() string {
		if s.get(bucket, key).revision != before {
			return broken
		}
		return ""
	})
}

func (s *stage) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
		panic(stop{context.Cause(s.ctx)})
	}
}

// succeeds waits until a slot has succeeded, and returns its record.
func (s *stage) succeeds(must, id string) stored {
	s.await(must, id+" to succeed", func() bool { return s.slot(id).text("state") == "succeeded" })
	return s.slot(id)
}

// acked waits until the message of a slot is acked. No other message is in the stream.
func (s *stage) acked(id string) {
	s.await("C-9", "the message of "+id+" to be acked", func() bool { return s.inStream() == 0 })
}

// inStream returns how many messages the slot stream has.
func (s *stage) inStream() int {
	stream, err := s.js.Stream(s.ctx, namespace+"_slots")
	s.must(err)
	return int(stream.CachedInfo().State.Msgs)
}
