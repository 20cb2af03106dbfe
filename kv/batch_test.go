package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// definitions returns n new definitions, each with its own nonce.
func definitions(n int, nonce string) []JobWrite {
	all := make([]JobWrite, n)
	for i := range all {
		name := fmt.Sprintf("job-%04d", i)
		all[i] = JobWrite{Definition: kvtest.Definition(name, nonce+name)}
	}
	return all
}

type result struct {
	revision uint64
	err      error
}

// sendAll writes all definitions and returns the result of each.
func sendAll(t *testing.T, s *Store, all []JobWrite) []result {
	t.Helper()
	results := make([]result, len(all))
	var answers sync.WaitGroup
	answers.Add(len(all))
	s.Jobs().SendAll(t.Context(), all, func(i int, revision uint64, err error) {
		if results[i] != (result{}) {
			t.Errorf("definition %d is answered twice", i)
		}
		results[i] = result{revision, err}
		answers.Done()
	})
	answers.Wait()
	return results
}

// wantStored checks that each definition is stored at the revision that its write
// returned.
func wantStored(t *testing.T, s *Store, all []JobWrite, results []result) {
	t.Helper()
	stored := map[string]core.Entry{}
	entries, err := s.Jobs().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		stored[e.Job.Name] = e
	}
	for i, d := range all {
		if e := stored[d.Job.Name]; results[i].err != nil || e.Revision != results[i].revision || e.Nonce != d.Nonce {
			t.Errorf("%s: told revision %d, %v; stored is revision %d with nonce %q", d.Job.Name, results[i].revision, results[i].err, e.Revision, e.Nonce)
			return
		}
	}
}

// batched counts the messages to the registry that are part of a batch, and the others.
type batched struct {
	nc           *nats.Conn
	mu           sync.Mutex
	parts, alone int
}

func countBatched(t *testing.T, nc *nats.Conn) *batched {
	t.Helper()
	b := &batched{nc: nc}
	_, err := nc.Subscribe("$KV.cronce_jobs.>", func(m *nats.Msg) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if m.Header.Get(headerBatchID) != "" {
			b.parts++
		} else {
			b.alone++
		}
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// want checks the counts since its last call.
func (b *batched) want(t *testing.T, parts, alone int) {
	t.Helper()
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.parts != parts || b.alone != alone {
		t.Errorf("%d messages were sent in batches and %d singly, want %d and %d", b.parts, b.alone, parts, alone)
	}
	b.parts, b.alone = 0, 0
}

func openStore(t *testing.T, js jetstream.JetStream) *Store {
	t.Helper()
	s, err := Open(t.Context(), js, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestBatchesStoreNewAndChangedDefinitionsAtTheRevisionsTheyReport(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s, beside := openStore(t, server.JetStream()), openStore(t, server.JetStream())
	tap := countBatched(t, server.Conn())
	all := definitions(2*maxBatch+minBatch, "new")
	first := sendAll(t, s, all)
	wantStored(t, s, all, first)
	tap.want(t, len(all), 0)
	// Half of the definitions change and new ones are added, while other writers are
	// active.
	changed := definitions(len(all)+100, "changed")
	for i := range changed {
		if i < len(all) {
			changed[i].Revision = first[i].revision
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var others sync.WaitGroup
	others.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := beside.Jobs().Write(t.Context(), kvtest.Definition(fmt.Sprint("other-", i), "a"), 0); err != nil {
				t.Error(err)
			}
		}
	})
	results := sendAll(t, s, changed)
	stop()
	others.Wait()
	wantStored(t, s, changed, results)
}

func TestFewDefinitionsAreWrittenSingly(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s := openStore(t, server.JetStream())
	tap := countBatched(t, server.Conn())
	all := definitions(minBatch-1, "a")
	wantStored(t, s, all, sendAll(t, s, all))
	tap.want(t, 0, len(all))
}

func TestAConflictInABatchRefusesItsOwnWriteOnly(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s := openStore(t, server.JetStream())
	all := definitions(100, "mine")
	if _, err := s.Jobs().Write(t.Context(), kvtest.Definition(all[50].Job.Name, "other"), 0); err != nil {
		t.Fatal(err)
	}
	results := sendAll(t, s, all)
	if !errors.Is(results[50].err, job.ErrConflict) {
		t.Errorf("the write that came second: %+v, want a conflict", results[50])
	}
	wantStored(t, s, append(all[:50:50], all[51:]...), append(results[:50:50], results[51:]...))
	if e, _, err := s.Jobs().Read(t.Context(), all[50].Job.Name); err != nil || e.Nonce != "other" {
		t.Errorf("it overwrote the first one: %+v, %v", e, err)
	}
}

// The registry denies batches if an older version created the namespace, or if an
// operator disabled them while nodes run.
func TestDefinitionsAreWrittenSinglyWhereTheStreamDeniesBatches(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	js := server.JetStream()
	s := openStore(t, js)
	stream, err := js.Stream(t.Context(), "KV_cronce_jobs")
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.AllowAtomicPublish = false
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	tap := countBatched(t, server.Conn())
	all := definitions(100, "a")
	results := sendAll(t, s, all)
	wantStored(t, s, all, results)
	tap.want(t, len(all), len(all))

	older := openStore(t, js)
	for i := range all {
		all[i].Nonce, all[i].Revision = fmt.Sprint("b", i), results[i].revision
	}
	wantStored(t, older, all, sendAll(t, older, all))
	tap.want(t, 0, len(all))

	changes, err := Setup(t.Context(), js, Options{})
	if err != nil || len(changes) == 0 || changes[0] != "changed bucket cronce_jobs: atomic batches allowed instead of denied" {
		t.Errorf("setup: %q, %v", changes, err)
	}
	all = definitions(100, "c")
	for i := range all {
		all[i].Job.Name = fmt.Sprint("later-", i)
	}
	upgraded := openStore(t, js)
	wantStored(t, upgraded, all, sendAll(t, upgraded, all))
	tap.want(t, len(all), 0)
}

// A server before 2.12 stores each message of a batch by itself, and answers only the
// last.
func TestABatchIsSentAgainSinglyToAServerThatKnowsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(&values{map[string]entry{}})
		results := sendTo(t, b, 40)
		for i, r := range results {
			if want := uint64(i + 1); r.err != nil || r.revision != want {
				t.Errorf("write %d: %+v, want revision %d", i, r, want)
			}
		}
		if n := b.count("$KV"); n != 2*len(results) {
			t.Errorf("%d messages were sent, want each once in the batch and once singly", n)
		}
	})
}

// If the batch got no answer, a refusal of the single copy leaves the write unknown. If
// the batch was refused, the refusal of the single copy is final.
func TestAnUnansweredBatchLeavesARefusedWriteUnknown(t *testing.T) {
	t.Parallel()
	for batch, want := range map[error]error{errTimeout: job.ErrUnknown, errDisk: job.ErrUnknown, error(errInFlight): errFull} {
		synctest.Test(t, func(t *testing.T) {
			b := newFakeBroker(refusing{batch})
			for i, r := range sendTo(t, b, minBatch) {
				if !errors.Is(r.err, want) || errors.Is(r.err, job.ErrUnknown) != (want == job.ErrUnknown) {
					t.Fatalf("write %d after a batch that met %v: %v, want %v", i, batch, r.err, want)
				}
			}
		})
	}
}

// refusing refuses single writes because it is full, and answers batches with the given
// error.
type refusing struct{ batch error }

func (r refusing) put(m *nats.Msg, _ uint64) (uint64, error) {
	switch {
	case m.Header.Get(headerBatchCommit) != "":
		return 0, r.batch
	case m.Header.Get(headerBatchID) != "":
		return 0, errTimeout
	}
	return 0, errFull
}

func (refusing) get() (entry, error) { return entry{}, errNothing }

// values is a broker's memory that holds any number of keys and their values.
type values struct{ all map[string]entry }

func (v *values) put(m *nats.Msg, revision uint64) (uint64, error) {
	if v.all[m.Subject].revision != revision {
		return 0, &jetstream.APIError{Code: 400, ErrorCode: 10071}
	}
	next := uint64(len(v.all) + 1)
	v.all[m.Subject] = entry{revision: next, data: m.Data}
	return next, nil
}

func (*values) get() (entry, error) { return entry{}, errNothing }

// find returns the value stored under subject.
func (v *values) find(subject string) (entry, error) {
	if e, ok := v.all[subject]; ok {
		return e, nil
	}
	return entry{}, errNothing
}

// sendTo sends n writes as one batch.
func sendTo(t *testing.T, b *fakeBroker, n int) []result {
	t.Helper()
	bucket := b.bucket()
	bucket.atomic = true
	results := make([]result, n)
	var answers sync.WaitGroup
	var writes []*writing
	for i := range n {
		answers.Add(1)
		w := bucket.writing(t.Context(), fmt.Sprint("key", i), 0, func(revision uint64, err error) {
			results[i] = result{revision, err}
			answers.Done()
		})
		if !w.prepareValue([]byte(fmt.Sprint(i)), "nonce", nil) {
			t.Fatal("not prepared")
		}
		writes = append(writes, w)
	}
	bucket.sendAll(t.Context(), writes)
	answers.Wait()
	return results
}

// behind opens one namespace twice: through a proxy, and directly.
func behind(t *testing.T, opts ...nats.Option) (through, beside *Store, p *natstest.Proxy) {
	t.Helper()
	server := natstest.Run(t)
	p = natstest.NewProxy(t, server.ClientURL())
	return openStore(t, natstest.JetStream(t, natstest.Connect(t, p.URL(), opts...))), openStore(t, server.JetStream()), p
}

func TestABatchWhoseAnswerIsLostIsRecognised(t *testing.T) {
	t.Parallel()
	through, beside, p := behind(t)
	all := definitions(300, "mine")
	p.Deafen()
	var healing sync.WaitGroup
	healing.Go(func() {
		natstest.Eventually(t, time.Minute, "the batch to be stored", func() bool {
			entries, err := beside.Jobs().List(t.Context())
			if n := len(entries); err == nil && n != 0 && n != len(all) {
				t.Errorf("%d definitions are stored, want none or all", n)
			}
			return err == nil && len(entries) == len(all)
		})
		p.Heal()
	})
	results := sendAll(t, through, all)
	healing.Wait()
	wantStored(t, beside, all, results)
	if last, err := beside.Jobs().Revision(t.Context()); err != nil || last != uint64(len(all)) {
		t.Errorf("the registry is at revision %d, %v: want each definition stored once", last, err)
	}
}

// severing cuts the connection after the given number of parts of a batch.
type severing struct {
	port
	after int
	cut   func()
}

func (s *severing) PublishMsg(m *nats.Msg) error {
	err := s.port.PublishMsg(m)
	if m.Header.Get(headerBatchID) != "" {
		if s.after--; s.after == 0 {
			s.cut()
		}
	}
	return err
}

func TestABatchThatIsSeveredBetweenItsPartsLeavesNothingHalfWritten(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]nats.Option{"dropped": {nats.ReconnectBufSize(-1)}, "buffered": nil} {
		for _, after := range []int{1, 150, 299, 300} {
			t.Run(fmt.Sprint(name, "/", after), func(t *testing.T) {
				t.Parallel()
				through, beside, p := behind(t, opts...)
				all := definitions(300, "mine")
				through.transport.conn = &severing{through.transport.conn, after, func() {
					_ = through.conn().Flush() // the server has received these parts
					p.Part()
					entries, err := beside.Jobs().List(t.Context())
					if n := len(entries); err != nil || n != 0 && n != len(all) || n != 0 && after < len(all) {
						t.Errorf("%d definitions are stored after %d parts, %v", n, after, err)
					}
					p.Heal()
				}}
				wantStored(t, beside, all, sendAll(t, through, all))
				if last, err := beside.Jobs().Revision(t.Context()); err != nil || last != uint64(len(all)) {
					t.Errorf("the registry is at revision %d, %v: want each definition stored once", last, err)
				}
			})
		}
	}
}

func TestBatchesOnThreeServersReportTheirRevisions(t *testing.T) {
	t.Parallel()
	c := natstest.RunCluster(t)
	s, beside := openStore(t, c.JetStream()), openStore(t, c.JetStream())
	mine, theirs := definitions(3*maxBatch, "mine"), definitions(3*maxBatch, "theirs")
	for i := range theirs {
		theirs[i].Job.Name = fmt.Sprint("their-", i)
	}
	var sending sync.WaitGroup
	var results []result
	sending.Go(func() { results = sendAll(t, beside, theirs) })
	wantStored(t, s, mine, sendAll(t, s, mine))
	sending.Wait()
	wantStored(t, s, theirs, results)
}
