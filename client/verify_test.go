package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/stream"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/lab/kvtest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// newArchive returns a client and the store of a namespace whose job "report" ran at none of its hours.
func newArchive(t *testing.T) (*client.Client, *kv.Store) {
	t.Helper()
	const ever = 200_000 * time.Hour
	s := natstest.Run(t)
	store := kvtest.Open(t, s.JetStream(), kv.Options{Want: job.Settings{Horizon: ever, Retention: 2 * ever}})
	d := plans.Definition{Job: job.Job{Name: "report", Schedule: "0 * * * *"}, Since: now.AddDate(0, 0, -1), Nonce: "n"}
	if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Watermark().Write(t.Context(), exchange.Watermark{Time: now, Revision: 100, Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(t.Context(), natstest.Connect(t, s.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	return c, store
}

func TestVerifyFindsMissingSlotsAndOffersThemOnce(t *testing.T) {
	t.Parallel()
	c, _ := newArchive(t)
	o := client.VerifyOptions{From: now.Add(-2 * time.Hour), To: now, Jobs: []string{"report"}}
	verify := func() (found []string, sum client.Verification) {
		t.Helper()
		read := 0
		o.Progress = func(values int) { read = values }
		sum, err := c.Verify(t.Context(), o, func(p client.SlotProblem) error {
			found = append(found, fmt.Sprintf("%s %s %s", p.Problem, p.ID, p.Repair))
			return nil
		})
		if err != nil || len(found) > 0 && read == 0 {
			t.Fatal(read, err)
		}
		return found, sum
	}
	found, sum := verify()
	if fmt.Sprint(found) != "[missing report:2026-03-28T11:00:00Z  missing report:2026-03-28T12:00:00Z ]" || sum.OK || sum.Missing != 2 || sum.Slots != 2 || sum.Offered != 0 {
		t.Errorf("found %q, %+v", found, sum)
	}
	o.Repair = true
	found, sum = verify()
	if fmt.Sprint(found) != "[missing report:2026-03-28T11:00:00Z offered missing report:2026-03-28T12:00:00Z offered]" || sum.Missing != 2 || sum.Offered != 2 {
		t.Errorf("repaired %q, %+v", found, sum)
	}
	if found, sum = verify(); len(found) > 0 || !sum.OK || sum.InProgress != 2 || sum.Offered != 0 {
		t.Errorf("while they wait: %q, %+v", found, sum)
	}
}

// The payload of a triggered run is in its record. It may expire, or an operator may remove it, between
// the check and the repair.
func TestVerifyRepairsTheOthersIfTheRecordOfATriggeredRunVanishes(t *testing.T) {
	t.Parallel()
	c, store := newArchive(t)
	var revisions []uint64
	slots := []job.Slot{{Job: "report", Token: "kept"}, {Job: "report", Token: "lost"}}
	for _, slot := range slots {
		r := job.Record{Slot: slot, Queue: "default", State: job.Running, Attempt: 1, Node: "dead", Nonce: "n", Published: now.Add(-time.Minute), Payload: []byte("1")}
		revision, err := store.Ledger().Write(t.Context(), r, 0)
		if err != nil {
			t.Fatal(err)
		}
		revisions = append(revisions, revision)
	}
	reads := 0
	o := client.VerifyOptions{From: now.Add(-time.Hour), To: now, Jobs: []string{"report"}, Progress: func(values int) { reads = values }}
	sum, err := c.Verify(t.Context(), o, nil)
	if err != nil || sum.NoOutcome != 2 || sum.Missing != 1 || sum.BeyondRepair != 0 {
		t.Fatalf("before the repair: %+v, %v", sum, err)
	}
	o.Repair = true
	checked := reads - sum.Problems() // each problem is one more value when it is repaired
	removed := false
	o.Progress = func(values int) {
		if values == checked && !removed {
			removed = true
			if err := store.Bucket("ledger").Remove(t.Context(), slots[1].Key(), revisions[1]); err != nil {
				t.Error(err)
			}
		}
	}
	found := map[string]client.SlotProblem{}
	sum, err = c.Verify(t.Context(), o, func(p client.SlotProblem) error {
		found[p.ID] = p
		return nil
	})
	if err != nil || sum.Offered != 2 || sum.BeyondRepair != 1 || len(found) != 3 {
		t.Errorf("%+v, %v, found %+v", sum, err, found)
	}
	if lost := found[slots[1].ID()]; lost.Repair != "" || !strings.Contains(lost.BeyondRepair, "its record, which had its payload, is missing") {
		t.Errorf("the run without a record: %+v", lost)
	}
}

// The run never had a record: a worker died after it had recorded the run before it.
func TestVerifyOffersARunThatShouldHaveFollowedATriggeredOne(t *testing.T) {
	t.Parallel()
	c, store := newArchive(t)
	d := plans.Definition{Job: job.Job{Name: "sum", After: []string{"report"}, Payload: []byte("7")}, Since: now.AddDate(0, 0, -1), Nonce: "n"}
	if _, err := store.Jobs().Write(t.Context(), d, 0); err != nil {
		t.Fatal(err)
	}
	r := job.Record{Slot: job.Slot{Job: "report", Token: "k"}, State: job.Succeeded, Attempt: 1, Node: "n", Nonce: "n", Published: now.Add(-30 * time.Minute), Finished: now.Add(-30 * time.Minute)}
	if _, err := store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
	for _, want := range []client.Repair{"", client.RepairOffered} {
		found := map[string]client.SlotProblem{}
		_, err := c.Verify(t.Context(), client.VerifyOptions{From: now.Add(-time.Hour), To: now, Repair: want != ""}, func(p client.SlotProblem) error {
			found[p.ID] = p
			return nil
		})
		if p := found["sum:@k"]; err != nil || p.Problem != "missing" || p.Repair != want || p.BeyondRepair != "" {
			t.Errorf("%+v, %v; want it missing, %q", found, err, want)
		}
	}
	for w, err := range store.Slots().Waiting(t.Context(), stream.WaitingFilter{Job: "sum"}) {
		if err != nil || w.Slot.Token != "k" || !w.Chained || string(w.Payload) != "7" {
			t.Errorf("offered: %+v, %v", w, err)
		}
	}
}

func TestVerifySaysThatAJobWasRemoved(t *testing.T) {
	t.Parallel()
	c, store := newArchive(t)
	r := job.Record{Slot: job.NewSlot("report", now.Add(-time.Hour)), State: job.Succeeded, Attempt: 1, Node: "n", Nonce: "n", Finished: now}
	if _, err := store.Ledger().Write(t.Context(), r, 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Remove(t.Context(), "report", client.RemoveOptions{}); err != nil {
		t.Fatal(err)
	}
	sum, err := c.Verify(t.Context(), client.VerifyOptions{From: now.Add(-2 * time.Hour), To: now}, nil)
	if err != nil || len(sum.NotJudged) != 1 || !strings.Contains(sum.NotJudged[0].Reason, "it was removed") {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestVerifyEndsWithTheErrorOfItsCallback(t *testing.T) {
	t.Parallel()
	c, _ := newArchive(t)
	enough, calls := errors.New("enough"), 0
	sum, err := c.Verify(t.Context(), client.VerifyOptions{From: now.Add(-2 * time.Hour), To: now}, func(client.SlotProblem) error {
		calls++
		return enough
	})
	if !errors.Is(err, enough) || calls != 1 || sum.Missing != 2 {
		t.Errorf("%d calls, %+v, %v", calls, sum, err)
	}
}

func TestVerifyReportsAnUnreadableWatermarkAndGoesOn(t *testing.T) {
	t.Parallel()
	c, store := newArchive(t)
	_, revision, err := store.Watermark().Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Bucket("state").Write(t.Context(), layout.WatermarkKey, []byte("{"), revision); err != nil {
		t.Fatal(err)
	}
	var unreadable []error
	o := client.VerifyOptions{From: now.Add(-2 * time.Hour), To: now, Unreadable: func(err error) { unreadable = append(unreadable, err) }}
	sum, err := c.Verify(t.Context(), o, nil)
	if err != nil || sum.Missing != 2 || sum.BeyondRepair != 2 || len(unreadable) != 1 {
		t.Errorf("%+v, %v, unreadable %v", sum, err, unreadable)
	}
}

func TestVerifyRefusesWhatItCannotJudge(t *testing.T) {
	t.Parallel()
	c, _ := newArchive(t)
	for _, test := range []struct {
		o    client.VerifyOptions
		want error
	}{
		{client.VerifyOptions{From: now, To: now}, job.ErrInvalid},
		{client.VerifyOptions{Jobs: []string{"a b"}}, job.ErrInvalid},
		{client.VerifyOptions{Jobs: []string{}, Repair: true}, job.ErrInvalid},
		{client.VerifyOptions{From: time.Now().AddDate(1, 0, 0)}, job.ErrInvalid},
		{client.VerifyOptions{Jobs: []string{"absent"}}, job.ErrNotFound},
	} {
		if sum, err := c.Verify(t.Context(), test.o, nil); !errors.Is(err, test.want) || !sum.To.IsZero() {
			t.Errorf("%+v: %+v, %v", test.o, sum, err)
		}
	}
	var future *client.FutureError
	next := time.Now().AddDate(1, 0, 0)
	for _, o := range []client.VerifyOptions{{From: next}, {From: next, To: next.AddDate(1, 0, 0)}, {To: next}} {
		if _, err := c.Verify(t.Context(), o, nil); !errors.As(err, &future) {
			t.Errorf("in the future: %+v: %v", o, err)
		}
	}
}

func TestVerificationNamesTheWriteThatTheLedgerLost(t *testing.T) {
	t.Parallel()
	c, store := newArchive(t)
	lost := exchange.Rewound{Time: now, Lost: exchange.LedgerMark{Slot: "report:2026-03-28T11:00:00Z", Revision: 7, Time: now.Add(-time.Minute)}, Found: 5}
	if _, err := store.SweepEnds().Write(t.Context(), exchange.SweepEnd{Node: "p1", Rewound: lost, Nonce: "n"}, 0); err != nil {
		t.Fatal(err)
	}
	sum, err := c.Verify(t.Context(), client.VerifyOptions{From: now.Add(-time.Hour), To: now}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(sum.Rewound)
	if want := `{"time":"2026-03-28T12:00:30Z","lost":{"slot":"report:2026-03-28T11:00:00Z","revision":7,"time":"2026-03-28T11:59:30Z"},"found":5}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	sum, err = c.Verify(t.Context(), client.VerifyOptions{From: now.Add(time.Second), To: now.Add(time.Hour)}, nil)
	if err != nil || sum.Rewound != nil {
		t.Errorf("after it: %+v, %v", sum.Rewound, err)
	}
}
