package memstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/memstore"
	"github.com/cronce-io/cronce/job"
)

// TestFaults shows what each fault leaves behind, and that the same write again
// settles it.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault  memstore.Fault
		err    error
		stored bool
	}{
		"lost answer":  {memstore.LostAnswer, job.ErrUnknown, true},
		"lost request": {memstore.LostRequest, job.ErrUnknown, false},
		"late":         {memstore.Late, job.ErrUnknown, false},
		"refused":      {memstore.Refused, memstore.ErrRefused, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := memstore.New().Ledger()
			r := kvtest.Record(0, "a")
			l.FailNext(test.fault)
			if _, err := l.Write(t.Context(), r, 0); !errors.Is(err, test.err) {
				t.Fatalf("got %v, want %v", err, test.err)
			}
			if _, _, err := l.Read(t.Context(), r.Slot); (err == nil) != test.stored {
				t.Fatalf("read: %v; stored should be %t", err, test.stored)
			}
			if _, err := l.Write(t.Context(), r, 0); err != nil {
				t.Fatalf("the same write again: %v", err)
			}
		})
	}
}

func TestAReadBesideARecordOfAnOldRevisionSaysSo(t *testing.T) {
	t.Parallel()
	l := memstore.New().Ledger()
	r := kvtest.Record(0, "a")
	revision, err := l.Write(t.Context(), r, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Beside(t.Context(), r.Slot, revision+1, nil); !errors.Is(err, job.ErrUnknown) || strings.Contains(err.Error(), "%!") {
		t.Errorf("got %v, want an unknown result, and no error of the format", err)
	}
}

func TestALateWriteLandsOnlyWhileItsRevisionIsTheLast(t *testing.T) {
	t.Parallel()
	l := memstore.New().Ledger()
	l.FailNext(memstore.Late, memstore.Late)
	for minute := range 2 {
		if _, err := l.Write(t.Context(), kvtest.Record(minute, "late"), 0); !errors.Is(err, job.ErrUnknown) {
			t.Fatal(err)
		}
	}
	if _, err := l.Write(t.Context(), kvtest.Record(0, "first"), 0); err != nil {
		t.Fatal(err)
	}
	if landed := l.Land(); landed != 1 {
		t.Fatalf("%d late writes landed, want the one that came first", landed)
	}
	if r, _, err := l.Read(t.Context(), kvtest.Record(0, "").Slot); err != nil || r.Nonce != "first" {
		t.Fatalf("%q, %v", r.Nonce, err)
	}
}
