package docs_test

import (
	"encoding/json"
	"testing"

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

	Ask       []string        `json:"ask,omitempty"`
	Place     string          `json:"place,omitempty"`
	InWay     string          `json:"in_way,omitempty"`
	Displaces string          `json:"displaces,omitempty"`
	Woken     []string        `json:"woken,omitempty"`
	Next      json.RawMessage `json:"next,omitempty"`
}

var placeNames = map[job.PlaceKind]string{
	job.PlaceHeld: "held", job.PlaceWaits: "waits", job.PlaceCrowded: "crowded", job.PlaceBarred: "skipped", job.PlaceDisplaced: "cancelled",
}

func TestLocks(t *testing.T) {
	t.Parallel()
	hold(t, "locks.json", func(t *testing.T, c lockCase) lockCase {
		c.Ask, c.Place, c.InWay, c.Displaces, c.Woken, c.Next = nil, "", "", "", nil, nil
		l, err := job.DecodeLock(c.Lock)
		if err != nil {
			t.Fatal(err)
		}
		asks, err := job.DecodeLock([]byte(`{"v":1,"job":"report","holders":[` + string(c.Slot) + `]}`))
		if err != nil {
			t.Fatal(err)
		}
		if c.Leave {
			next, woken := l.Leave(asks.Holders[0].Slot, c.Places)
			c.Woken, c.Next = ids(woken...), raw(t, next)
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
		next, place, ask := l.Enter(job.Entrant{LockSlot: asks.Holders[0], Policy: c.Overlap, Places: c.Places}, ended)
		if len(ask) > 0 {
			for _, a := range ask {
				c.Ask = append(c.Ask, a.Slot.ID())
			}
			return c
		}
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
	})
}

func ids(slots ...job.Slot) (all []string) {
	for _, s := range slots {
		all = append(all, s.ID())
	}
	return all
}
