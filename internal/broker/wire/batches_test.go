package wire_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/broker/wire"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// definitions returns n new definitions, each with its own nonce.
func definitions(n int, nonce string) []kv.JobWrite {
	all := make([]kv.JobWrite, n)
	for i := range all {
		name := fmt.Sprintf("job-%04d", i)
		all[i] = kv.JobWrite{Definition: kvtest.Definition(name, nonce+name)}
	}
	return all
}

type result struct {
	revision uint64
	err      error
}

// sendAll writes all definitions and returns the result of each.
func sendAll(t *testing.T, s *kv.Store, all []kv.JobWrite) []result {
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
func wantStored(t *testing.T, s *kv.Store, all []kv.JobWrite, results []result) {
	t.Helper()
	stored := map[string]plans.Entry{}
	entries, err := s.Jobs().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		stored[e.Job.Name] = e
	}
	for i, d := range all {
		if e := stored[d.Job.Name]; results[i].err != nil || e.Revision != results[i].revision || e.Nonce != d.Nonce {
			t.Errorf("%s: reported revision %d, %v; stored is revision %d with nonce %q", d.Job.Name, results[i].revision, results[i].err, e.Revision, e.Nonce)
			return
		}
	}
}

// batched counts the messages to a bucket.
type batched struct {
	nc    *nats.Conn
	sub   *nats.Subscription
	since time.Time // of the last call of want
}

func countBatched(t *testing.T, nc *nats.Conn, bucket string) *batched {
	t.Helper()
	sub, err := nc.SubscribeSync("$KV.cronce_" + bucket + ".>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return &batched{nc, sub, time.Now()}
}

// counts returns how many messages were sent in batches and how many singly since its last
// call.
func (b *batched) counts(t *testing.T) (parts, alone int) {
	t.Helper()
	if err := b.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	n, _, err := b.sub.Pending()
	for range n {
		var m *nats.Msg
		if m, err = b.sub.NextMsg(natstest.Patience); err != nil {
			break
		}
		if m.Header.Get(wire.HeaderBatchID) != "" {
			parts++
		} else {
			alone++
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return parts, alone
}

// want checks the counts since its last call. Messages that were answered too late are sent singly once
// more; see sentOnce.
func (b *batched) want(t *testing.T, parts, alone int) {
	t.Helper()
	took := time.Since(b.since)
	if p, a := b.counts(t); p != parts || !sentOnce(a, alone, took) {
		t.Errorf("%d messages were sent in batches and %d singly, want %d and %d, in %v", p, a, parts, alone, took)
	}
	b.since = time.Now()
}

func openStore(t *testing.T, js jetstream.JetStream) *kv.Store {
	t.Helper()
	s := kvtest.Open(t, js, kv.Options{})
	return s
}

func TestBatchesStoreNewAndChangedDefinitionsAtTheRevisionsTheyReport(t *testing.T) {
	t.Parallel()
	server := natstest.Run(t)
	s, beside := openStore(t, server.JetStream()), openStore(t, server.JetStream())
	tap := countBatched(t, server.Conn(), "jobs")
	all := definitions(2*wire.MaxBatch+wire.MinBatch, "new")
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
	tap := countBatched(t, server.Conn(), "jobs")
	all := definitions(wire.MinBatch-1, "a")
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
	tap := countBatched(t, server.Conn(), "jobs")
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

	changes, err := space.Setup(t.Context(), js, kv.Options{})
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

// behind opens one namespace twice: through a proxy, and directly.
func behind(t *testing.T, opts ...nats.Option) (through, beside *kv.Store, p *proxy.Proxy) {
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
		natstest.Eventually(t, "the batch to be stored", func() bool {
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
	wire.Port
	after int
	cut   func()
}

func (s *severing) PublishMsg(m *nats.Msg) error {
	err := s.Port.PublishMsg(m)
	if m.Header.Get(wire.HeaderBatchID) != "" {
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
				all, healed := definitions(300, "mine"), make(chan struct{})
				through.Intercept(func(conn wire.Port) wire.Port {
					return &severing{conn, after, func() {
						defer close(healed)
						_ = through.Conn().Flush() // the server has received these parts
						p.Cut()
						entries, err := beside.Jobs().List(t.Context())
						if n := len(entries); err != nil || n != 0 && n != len(all) || n != 0 && after < len(all) {
							t.Errorf("%d definitions are stored after %d parts, %v", n, after, err)
						}
						p.Heal()
					}}
				})
				results := sendAll(t, through, all)
				<-healed // the answer may come before the connection is cut
				wantStored(t, beside, all, results)
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
	mine, theirs := definitions(3*wire.MaxBatch, "mine"), definitions(3*wire.MaxBatch, "theirs")
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
