package core_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// The fuzz targets decode an arbitrary value, and then process it as nodes do. They look for panics,
// for infinite loops, for encoded values that cannot be decoded, and for handlers that would start
// against the rules.

// read decodes a value of the kind. If the decoder refuses the value, read checks the error and
// returns nil.
func read(t *testing.T, kind string, data []byte) json.Marshaler {
	t.Helper()
	v, err := decoders[kind](data)
	if err == nil {
		return v
	}
	if !errors.Is(err, job.ErrInvalid) && !errors.Is(err, job.ErrVersion) {
		t.Errorf("an error of no kind: %v", err)
	}
	const most = 4 << 10 // the error of a definition may be longer, since it joins several
	if kind != "definition" && len(err.Error()) > most {
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
	return nil
}

// corpus adds the sound value of a kind and further values.
func corpus(f *testing.F, kind string, more ...string) {
	for _, value := range append(more, sound[kind]) {
		f.Add([]byte(value), int64(0))
		f.Add([]byte(value), int64(1<<40))
	}
}

func FuzzRecord(f *testing.F) {
	corpus(f, "record",
		`{"v":1,"id":"report:2026-11-21T07:00:00Z","queue":"default","state":"running","shards":9223372036854775807}`,
		`{"v":1,"id":"report:2026-11-21T07:00:00Z#1of2","queue":"default","state":"retrying","attempt":1,"retry_at":"9999-12-31T23:59:59Z"}`,
		`{"v":1,"id":"report:m.0001-01-01T00:00:00Z","state":"missed","count":2147483647,"last":"9999-12-31T23:59:59Z"}`,
		`{"v":1,"id":"report:@k","state":"running","attempt":1000000,"max_attempts":1000000,"node":"me"}`)
	f.Fuzz(func(t *testing.T, data []byte, ago int64) {
		v := read(t, "record", data)
		if v == nil {
			return
		}
		bounded(t, "record", "record", v)
		r := v.(job.Record)
		d := core.Delivery{Message: core.Message{Slot: r.Slot, JobRevision: r.JobRevision, Due: r.Due, Offer: 1}, Queue: r.Queue, Published: r.Published, Count: 1 << 40}
		now := at0.Add(time.Duration(ago))
		entry := &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: r.Slot.Job, Schedule: "@hourly"}.WithDefaults()}, Revision: 9, Time: at0}
		for _, dead := range []bool{false, true} {
			for _, e := range []*plans.Entry{nil, entry} {
				view := core.View{Now: now, Self: "me", Horizon: job.DefaultHorizon, Record: &r, Revision: 7, OwnerDead: dead, Entry: e, Handles: true, Admission: core.Admission{Kind: core.AdmissionGranted}}
				if r.Slot.Shards > 0 {
					view.Whole = core.Whole{Known: true, Record: &job.Record{Slot: r.Slot.Whole(), State: job.Running, Shards: r.Slot.Shards}}
				}
				s := core.Decide(d, view)
				if s.Action == core.Start && (r.State.Final() || r.Shards > 0 || r.State == job.Running && r.Node != "me" && !dead) {
					t.Errorf("%s: it starts", data)
				}
				writable(t, s)
				core.NewEntrant(d, view)
				core.NeedsDefinition(d, view)
			}
		}
		for _, err := range []error{nil, errors.New("boom"), job.RetryAfter(1<<62, errors.New("later"))} {
			written(t, core.Complete(r, 7, now, job.DefaultHorizon, core.Result{Err: err, Backoff: 1 << 62}))
		}
		written(t, core.Cancel(d, core.View{Now: now, Self: "me", Record: &r}, job.ErrCancelled))
		written(t, core.Reopen(r, "alice", job.MaxAttempts, now))
		written(t, core.ReopenWhole(r))
		written(t, core.MarkWhole(r, job.ErrCancelled))
		if r.Shards > 0 {
			written(t, core.Conclude(r, []job.Record{r, r}, "me", now))
		}
		exchange.NewAlert(r, 7, r.State)
	})
}

func TestDecodersRefuseTextAfterTheObject(t *testing.T) {
	t.Parallel()
	for kind, decode := range decoders {
		for _, rest := range []string{"}", "}x", "]", " ]}", ",", "{}", "x"} {
			if _, err := decode([]byte(sound[kind] + rest)); !errors.Is(err, job.ErrInvalid) {
				t.Errorf("%s with %q after it: %v", kind, rest, err)
			}
		}
		if _, err := decode([]byte(sound[kind] + " \n\t\r")); err != nil {
			t.Errorf("%s with white space after it: %v", kind, err)
		}
	}
}

func writable(t *testing.T, s core.Decision) {
	t.Helper()
	if s.Action == core.Start || s.Action == core.End || s.Action == core.WriteWhole {
		written(t, s.Record)
	}
}

// written fails the test if a record cannot be encoded and decoded again.
func written(t *testing.T, r job.Record) {
	t.Helper()
	data, err := r.MarshalJSON()
	if err == nil {
		_, err = exchange.DecodeRecord(data)
	}
	if err != nil {
		t.Errorf("%v: it would be written, and cannot be read: %.500s", err, data)
	}
}

func FuzzLock(f *testing.F) {
	corpus(f, "lock", `{"v":1,"job":"report","holders":[],"newest":"9999-12-31T23:59:59Z"}`)
	f.Fuzz(func(t *testing.T, data []byte, ago int64) {
		v := read(t, "lock", data)
		if v == nil {
			return
		}
		bounded(t, "lock", "lock", v)
		l := v.(core.Lock)
		stay := core.LockSlot{Slot: job.NewSlot(l.Job, at0), At: at0.Add(time.Duration(ago)), Since: at0}
		for _, policy := range job.Overlaps() {
			for _, onTime := range []bool{false, true} {
				stay.OnTime = onTime
				next, _ := l.Enter(core.Entrant{LockSlot: stay, Policy: policy, Places: 1})
				bounded(t, "lock", "lock", next)
				bounded(t, "lock", "lock", l.Stood(uint64(ago)))
				for _, h := range l.Holders {
					bounded(t, "lock", "lock", l.Leave(h.Slot, "A"))
				}
			}
		}
	})
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"v":1,"id":"report:2026-11-21T07:00:00Z","at":"2026-11-21T07:00:00Z","on_time":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := core.DecodeEntry("report", data)
		if err != nil {
			return
		}
		again, err := json.Marshal(e)
		if err != nil {
			t.Fatalf("%s: it cannot be written again: %v", data, err)
		}
		if _, err := core.DecodeEntry("report", again); err != nil {
			t.Errorf("%s: what is written of it cannot be read: %v", again, err)
		}
	})
}

func FuzzDefinition(f *testing.F) {
	corpus(f, "definition",
		`{"v":1,"job":{"name":"report","queue":"default","attempts":3,"backoff":"1s","max_backoff":"1m0s","overlap":"skip","catch_up":"all","catch_up_max":1000,"plan":{"schedule":"* * * * * *","timezone":"UTC","dst_gap":"after","dst_overlap":"first"}},"since":"0000-01-01T00:00:00Z","past":[{"from":"0000-01-01T00:00:00Z","plan":{"schedule":"@hourly","shards":257}}],"owner":"file","node":"a","nonce":"n"}`)
	f.Fuzz(func(t *testing.T, data []byte, ago int64) {
		v := read(t, "definition", data)
		if v == nil {
			return
		}
		bounded(t, "definition", "definition", v)
		e := plans.Entry{Definition: v.(plans.Definition), Revision: 7, Time: at0}
		e.Job = e.Job.WithDefaults()
		now := at0.Add(time.Duration(ago))
		for _, p := range e.Plans() {
			s, err := job.ParseSchedule(e.Job.Name, p.Plan)
			if err != nil {
				continue
			}
			s.Next(now)
			if stretches := e.Stretches(p, s); len(stretches) > 3*60 {
				t.Errorf("%d stretches", len(stretches))
			}
		}
		_, _, _ = e.IfResumed(now, 0)
		d := core.Delivery{Message: core.Message{Slot: job.NewSlot(e.Job.Name, now), JobRevision: 1}, Queue: "default", Published: now}
		view := core.View{Now: now, Self: "me", Horizon: job.DefaultHorizon, Entry: &e, Handles: true, Admission: core.Admission{Kind: core.AdmissionGranted}}
		writable(t, core.Decide(d, view))
		core.NewEntrant(d, view)
		if !e.Job.On.IsZero() {
			if n := len(core.EventRun(e, core.StreamEvent{Stream: "ORDERS", ID: "id", Sequence: 7, Stored: now, Size: 10})); n > job.MaxShards {
				t.Errorf("%d messages", n)
			}
		}
		paused, _ := plans.Pause(e, "me")
		bounded(t, "paused", "definition", paused)
		resumed, _ := plans.Resume(e, "me")
		bounded(t, "resumed", "definition", resumed)
		next, _, err := plans.Upsert(&e, job.Job{Name: e.Job.Name, Schedule: "@hourly"}, plans.OwnerFile, "me", false)
		if err == nil {
			bounded(t, "upserted", "definition", next)
		}
	})
}

func FuzzMessage(f *testing.F) {
	names := []string{
		core.HeaderSlot, core.HeaderMsgID, core.HeaderDue, core.HeaderMissed, core.HeaderMissedLast, core.HeaderJobRevision, core.HeaderNode,
		core.HeaderRefused, core.HeaderTraceparent, core.HeaderCaughtUp, core.HeaderBackfill, core.HeaderChained,
	}
	f.Add([]byte("report:2026-11-21T07:00:00Z\nreport:2026-11-21T07:00:00Z/r99999999999999999999\n9999-12-31T23:59:59-23:59\n18446744073709551615\n0000-01-01T00:00:00+23:59\n18446744073709551615\nn\nno\n00-x\n1\n1\n1"), int64(0))
	f.Add([]byte("report:@k#256of256\n\n2026-11-21T07:00:00Z"), int64(1))
	f.Add([]byte("report:m.2026-11-21T07:00:00Z\n\n\n1000\n9999-12-31T23:59:59Z"), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, ago int64) {
		header := map[string][]string{}
		for i, value := range bytes.Split(data, []byte("\n")) {
			if i < len(names) && len(value) > 0 {
				header[names[i]] = []string{string(value)}
			}
		}
		m, err := core.ParseMessage(header)
		if err != nil {
			if !errors.Is(err, job.ErrInvalid) || len(err.Error()) > 1000 {
				t.Errorf("%d bytes: %.300v", len(err.Error()), err)
			}
			return
		}
		if again, err := core.ParseMessage(m.Header()); err != nil || again.Slot != m.Slot || !again.Due.Equal(m.Due) {
			t.Errorf("%v reads %v, %v", m, again, err)
		}
		if len(m.Refused)+len(m.Node)+len(m.Traceparent) > 4<<10 || m.Missed < 0 || m.Offer < 0 {
			t.Errorf("%.300v", m)
		}
		now := at0.Add(time.Duration(ago))
		entry := &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: m.Slot.Job, Schedule: "@hourly"}.WithDefaults()}, Revision: 9, Time: at0}
		d := core.Delivery{Message: m, Queue: "default", Published: at0, Count: 1}
		view := core.View{Now: now, Self: "me", Horizon: job.DefaultHorizon, Entry: entry, Handles: true, Admission: core.Admission{Kind: core.AdmissionGranted}, Whole: core.Whole{Known: true}}
		s := core.Decide(d, view)
		writable(t, s)
		if s.Action == core.Later && s.Delay > time.Hour {
			t.Errorf("it is given back for %v", s.Delay)
		}
		core.StartBy(d, *entry)
	})
}

// FuzzValue covers the kinds of values that need little code after the decoder.
func FuzzValue(f *testing.F) {
	kinds := []string{"node", "settings", "watermark", "event", "announcement", "sweep", "handlers"}
	for i, kind := range kinds {
		f.Add([]byte(sound[kind]), int64(i))
	}
	f.Add([]byte(`{"v":1,"id":"report:@k","fence":7,"by":"x"}`), int64(7))
	f.Add([]byte(`{"v":1,"ending":true,"error":"x"}`), int64(8))
	f.Fuzz(func(t *testing.T, data []byte, which int64) {
		switch kind := slices.Concat(kinds, []string{"cancel", "answer"})[uint64(which)%9]; kind {
		case "cancel":
			slot, r, err := core.DecodeCancel(data)
			if err != nil && len(err.Error()) > 1000 || err == nil && (len(r.Cause().Error()) > 1000 || slot.Job == "") {
				t.Errorf("%v %.300v %.300v", slot, r, err)
			}
		case "answer":
			if a, _ := core.DecodeCancelAnswer(data); len(a.Error) > 5000 {
				t.Errorf("an error of %d bytes", len(a.Error))
			}
		default:
			v := read(t, kind, data)
			if v == nil {
				return
			}
			bounded(t, kind, kind, v)
			switch v := v.(type) {
			case exchange.Node:
				if _, err := v.Began().MarshalJSON(); err != nil {
					t.Error(err)
				}
			case job.Settings:
				if err := v.WithDefaults().Validate(); err != nil && !errors.Is(err, job.ErrInvalid) {
					t.Error(err)
				}
			case job.Event:
				_ = exchange.CheckEventSubject(v, "cronce.event.failed.report")
			}
		}
	})
}
