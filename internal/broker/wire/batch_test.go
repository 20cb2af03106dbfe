package wire

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// result is the answer to one write.
type answered struct {
	revision uint64
	err      error
}

// A server before 2.12 stores each message of a batch by itself, and answers only the
// last.
func TestABatchIsSentAgainSinglyToAServerThatKnowsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(&values{map[string]Entry{}})
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

func (refusing) get() (Entry, error) { return Entry{}, ErrNothing }

// values is a broker's memory that holds any number of keys and their values.
type values struct{ all map[string]Entry }

func (v *values) put(m *nats.Msg, revision uint64) (uint64, error) {
	if v.all[m.Subject].Revision != revision {
		return 0, &jetstream.APIError{Code: 400, ErrorCode: 10071}
	}
	next := uint64(len(v.all) + 1)
	v.all[m.Subject] = Entry{Revision: next, Data: m.Data}
	return next, nil
}

func (*values) get() (Entry, error) { return Entry{}, ErrNothing }

// find returns the value stored under subject.
func (v *values) find(subject string) (Entry, error) {
	if e, ok := v.all[subject]; ok {
		return e, nil
	}
	return Entry{}, ErrNothing
}

// sendTo sends n writes as one batch.
func sendTo(t *testing.T, b *fakeBroker, n int) []answered {
	t.Helper()
	bucket := b.bucket()
	bucket.Atomic = true
	results := make([]answered, n)
	var answers sync.WaitGroup
	var writes []*Writing
	for i := range n {
		answers.Add(1)
		w := bucket.Writing(t.Context(), fmt.Sprint("key", i), 0, func(revision uint64, err error) {
			results[i] = answered{revision, err}
			answers.Done()
		})
		if !w.PrepareValue([]byte(fmt.Sprint(i)), "nonce", nil) {
			t.Fatal("not prepared")
		}
		writes = append(writes, w)
	}
	bucket.SendAll(writes)
	answers.Wait()
	return results
}
