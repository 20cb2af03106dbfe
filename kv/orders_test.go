package kv_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// Nodes work with the stream of events of an older version, and setup makes it keep orders.
func TestEventsOfAnOlderVersionAreTolerated(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	open(t, js, kv.Options{})
	s, err := js.Stream(t.Context(), "cronce_events")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	older := func(subjects ...string) {
		t.Helper()
		cfg.Subjects = slices.DeleteFunc(slices.Clone(cfg.Subjects), func(subject string) bool { return slices.Contains(subjects, subject) })
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	older("cronce.event.ordered.*")
	open(t, js, kv.Options{})
	_, v, err := kv.Examine(t.Context(), js, kv.Options{})
	if err != nil || len(v.Differences) != 1 || !v.Differences[0].Tolerated || v.Differences[0].Field != layout.FieldOrders {
		t.Errorf("%+v, %v", v.Differences, err)
	}
	older("cronce.event.failed.*") // that is another thing
	if _, err := kv.Open(t.Context(), js, kv.Options{}); err == nil || !strings.Contains(err.Error(), "subjects") {
		t.Errorf("without failures: %v", err)
	}
	if _, err := space.Setup(t.Context(), js, kv.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, v, err = kv.Examine(t.Context(), js, kv.Options{}); err != nil || len(v.Differences) != 0 {
		t.Errorf("after setup: %+v, %v", v.Differences, err)
	}
}

// The server refuses a record that is larger, so no slot would start: nodes would work, and get nowhere.
func TestSetupRemovesALimitOfTheMessageSizeThatIsTooSmall(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	if _, err := space.Setup(t.Context(), js, kv.Options{}); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "KV_cronce_ledger")
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	for size, differs := range map[int32]bool{300: true, layout.EnoughPayload - 1: true, layout.EnoughPayload: false} {
		cfg.MaxMsgSize = size
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		open(t, js, kv.Options{})
		_, v, err := kv.Examine(t.Context(), js, kv.Options{})
		if found := len(v.Differences) == 1 && v.Differences[0].Field == layout.FieldMessageSize; err != nil || found != differs {
			t.Errorf("%d bytes: %+v, %v", size, v.Differences, err)
		}
		if changes, err := space.Setup(t.Context(), js, kv.Options{}); err != nil || (len(changes) == 1) != differs {
			t.Errorf("setup of %d bytes: %q, %v", size, changes, err)
		}
		if _, v, err := kv.Examine(t.Context(), js, kv.Options{}); err != nil || len(v.Differences) != 0 {
			t.Errorf("after setup: %+v, %v", v.Differences, err)
		}
	}
}

func TestNamespaceThatLacksAStreamSaysWhich(t *testing.T) {
	t.Parallel()
	js := natstest.Run(t).JetStream()
	open(t, js, kv.Options{})
	if err := js.DeleteStream(t.Context(), "cronce_slots"); err != nil {
		t.Fatal(err)
	}
	_, err := kv.Open(t.Context(), js, kv.Options{ReadOnly: true})
	if !errors.Is(err, job.ErrNotFound) || !strings.Contains(err.Error(), "lacks stream cronce_slots: ") || !strings.Contains(err.Error(), "cronce setup") {
		t.Errorf("%v", err)
	}
}
