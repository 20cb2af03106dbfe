package docs_test

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// lockCase is one question to a lock and its answer.
type lockCase struct {
	Name    string          `json:"name"`
	Lock    json.RawMessage `json:"lock"`
	Overlap job.Overlap     `json:"overlap"`
	Places  int             `json:"places"`
	Slot    json.RawMessage `json:"slot"` // as it stands in a lock

	// Ended says of slots whether they have; one that is asked for and not here
	// comes back in Ask. Leave has the slot leave instead of enter.
	Ended map[string]bool `json:"ended,omitempty"`
	Leave bool            `json:"leave,omitempty"`

	// Reoffered: the slot may have been reopened since it entered the lock.
	Reoffered bool `json:"reoffered,omitempty"`

	// Crowd is how many slots wait in the lock before those that are listed, and
	// in next as well: crowd has them.
	Crowd int `json:"crowd,omitempty"`

	Ask       []string        `json:"ask,omitempty"`
	Place     string          `json:"place,omitempty"`
	InWay     string          `json:"in_way,omitempty"`
	Displaces string          `json:"displaces,omitempty"`
	Woken     []string        `json:"woken,omitempty"`
	Next      json.RawMessage `json:"next,omitempty"`
}

var placeNames = map[core.AdmissionKind]string{
	core.AdmissionGranted: "held", core.AdmissionQueued: "waits", core.AdmissionCrowded: "crowded", core.AdmissionSkipped: "skipped", core.AdmissionReplaced: "cancelled",
}

func TestLocks(t *testing.T) {
	t.Parallel()
	hold(t, "locks.json", answerLock)
}

func answerLock(t *testing.T, c lockCase) lockCase {
	t.Helper()
	c.Ask, c.Place, c.InWay, c.Displaces, c.Woken, c.Next = nil, "", "", "", nil, nil
	l, err := core.DecodeLock(c.Lock)
	if err != nil {
		t.Fatal(err)
	}
	l.Waiting = slices.Concat(crowd(c.Crowd), l.Waiting)
	asks, err := core.DecodeLock([]byte(`{"v":1,"job":"report","holders":[` + string(c.Slot) + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.Leave {
		next, woken := l.Leave(asks.Holders[0].Slot, c.Places)
		c.Woken, c.Next = nil, raw(t, next)
		for _, s := range woken {
			c.Woken = append(c.Woken, s.Slot.ID())
		}
		return c
	}
	ended := map[job.Slot]bool{}
	for id, e := range c.Ended {
		slot, err := job.ParseSlotID(id)
		if err != nil {
			t.Fatal(err)
		}
		ended[slot] = e
	}
	next, place, ask := l.Enter(core.Entrant{LockSlot: asks.Holders[0], Policy: c.Overlap, Places: c.Places}, ended)
	if len(ask) > 0 {
		c.Ask = ids(ask...)
		return c
	}
	if c.Reoffered && next.Has(asks.Holders[0].Slot) {
		next = next.Renewed(asks.Holders[0].Slot, asks.Holders[0].Since)
	}
	if !slices.Equal(ids(next.Waiting[:c.Crowd]...), ids(crowd(c.Crowd)...)) {
		t.Errorf("%s: of those that waited before, some are gone", c.Name)
	}
	next.Waiting = next.Waiting[c.Crowd:]
	c.Place, c.Next = placeNames[place.Kind], raw(t, next)
	for _, named := range []struct {
		slot job.Slot
		to   *string
	}{{place.InWay, &c.InWay}, {place.Displaces, &c.Displaces}} {
		if named.slot != (job.Slot{}) {
			*named.to = named.slot.ID()
		}
	}
	return c
}

// crowd are n triggered runs of the job "report", @1 to @n, that came at 06:00:00.
func crowd(n int) []core.LockSlot {
	var all []core.LockSlot
	at := time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	for i := range n {
		all = append(all, core.LockSlot{Slot: job.Slot{Job: "report", Token: strconv.Itoa(i + 1)}, At: at, Since: at})
	}
	slices.SortFunc(all, func(a, b core.LockSlot) int { return cmp.Compare(a.Slot.ID(), b.Slot.ID()) })
	return all
}

func ids(slots ...core.LockSlot) (all []string) {
	for _, s := range slots {
		all = append(all, s.Slot.ID())
	}
	return all
}
