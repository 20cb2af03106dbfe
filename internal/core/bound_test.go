package core_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// decoders has the decoder of every kind of value that the broker stores.
var decoders = map[string]func([]byte) (json.Marshaler, error){
	"record":       func(b []byte) (json.Marshaler, error) { return exchange.DecodeRecord(b) },
	"lock":         func(b []byte) (json.Marshaler, error) { return core.DecodeLock(b) },
	"node":         func(b []byte) (json.Marshaler, error) { return exchange.DecodeNode(b) },
	"settings":     func(b []byte) (json.Marshaler, error) { return exchange.DecodeSettings(b) },
	"watermark":    func(b []byte) (json.Marshaler, error) { return exchange.DecodeWatermark(b) },
	"handlers":     func(b []byte) (json.Marshaler, error) { return exchange.DecodeHandlers(b) },
	"sweep":        func(b []byte) (json.Marshaler, error) { return exchange.DecodeSweepEnd(b) },
	"event":        func(b []byte) (json.Marshaler, error) { return exchange.DecodeEvent(b) },
	"announcement": func(b []byte) (json.Marshaler, error) { return exchange.DecodeAnnouncement(b) },
	"definition": func(b []byte) (json.Marshaler, error) {
		e, err := plans.DecodeEntry(b, 7, at0)
		return e.Definition, err
	},
}

var at0 = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// sound has a valid value of each kind, with all members. The tests replace members of them.
var sound = map[string]string{
	"record": `{"v":1,"id":"report:2026-11-21T07:00:00Z","queue":"default","state":"retrying","attempt":1,"attempts":[{"attempt":1,"node":"a-1-1-x","fence":7,"started":"2026-11-21T07:00:00Z","finished":"2026-11-21T07:00:01Z","error":"boom"}],` +
		`"max_attempts":3,"node":"a-1-1-x","nonce":"n","job_revision":5,"due":"2026-11-21T07:00:00Z","published":"2026-11-21T07:00:00Z","publisher":"p","payload":"e30=","retry_at":"2026-11-21T07:00:02Z","finished":"2026-11-21T07:00:02Z","error":"boom","output":"out","shards":2,"count":1,"last":"2026-11-21T07:00:00Z"}`,
	"lock":      `{"v":1,"job":"report","holders":[{"id":"report:2026-11-21T07:00:00Z","at":"2026-11-21T07:00:00Z","on_time":true,"since":"2026-11-21T07:00:00Z","node":"a"}],"waiting":true,"line":7,"newest":"2026-11-21T07:00:00Z","nonce":"n"}`,
	"node":      `{"v":1,"node":"a-1-1-x","state":"alive","started":"2026-11-21T07:00:00Z","lease":"20s","producer":true,"worker":true,"queues":["default"],"priority":1,"running":2,"clock_offset":"1ms","clock_error":"1ms","tzdata":"2026b","version":"v1","fenced_by":"b","fenced_at":"2026-11-21T07:00:00Z","nonce":"n"}`,
	"settings":  `{"v":1,"lease":"20s","horizon":"24h0m0s","retention":"168h0m0s","duplicates":"2m0s","replicas":1}`,
	"watermark": `{"v":1,"time":"2026-11-21T07:00:00Z","registry_revision":7,"registry_time":"2026-11-21T07:00:00Z","node":"a-1-1-x","nonce":"n"}`,
	"handlers":  `{"v":1,"node":"a-1-1-x","handlers":["report"],"more":2,"nonce":"n"}`,
	"sweep": `{"v":1,"node":"a-1-1-x","skipped":[{"what":"slot report:@k","why":"boom"}],"more":1,"newest":{"slot":"report:@k","revision":7,"time":"2026-11-21T07:00:00Z"},` +
		`"rewound":{"time":"2026-11-21T07:00:00Z","lost":{"slot":"report:@k","revision":7,"time":"2026-11-21T07:00:00Z"},"found":3},"nonce":"n"}`,
	"event":        `{"v":1,"kind":"failed","time":"2026-11-21T07:00:00Z","node":"a-1-1-x","id":"report:@k","job":"report","attempt":1,"fence":7,"error":"boom","peer":"b","alert":"failed","count":1,"last":"2026-11-21T07:00:00Z"}`,
	"announcement": `{"v":1,"node":"a-1-1-x","started":"2026-11-21T07:00:00Z","kind":"here","time":"2026-11-21T07:00:00Z","except":["report"],"members":"0000000000000001","registry":"0000000000000002"}`,
	"definition": `{"v":1,"job":{"name":"report","queue":"default","payload":{},"timeout":"1m0s","deadline":"1m0s","attempts":3,"backoff":"1s","max_backoff":"1m0s","overlap":"skip","concurrency":1,"on_lease_lost":"finish","catch_up":"latest","catch_up_within":"1h0m0s","catch_up_max":100,"output":10,` +
		`"plan":{"schedule":"@daily","timezone":"UTC","spread":"1s","from":"2026-01-01T00:00:00Z","until":"2027-01-01T00:00:00Z","exclude":["2026-12-25"],"dst_gap":"after","dst_overlap":"first","shards":3}},` +
		`"since":"2026-11-21T07:00:00Z","past":[{"from":"2026-11-20T07:00:00Z","plan":{"schedule":"@hourly","timezone":"UTC","dst_gap":"after","dst_overlap":"first","shards":2}}],"superseded":["abc"],"paused":true,"pauses":[{"from":"2026-11-21T07:00:00Z","to":"2026-11-21T08:00:00Z"},{"from":"2026-11-21T09:00:00Z"}],"applied":true,"owner":"file","node":"a-1-1-x","nonce":"n"}`,
}

// The test replaces each member of each value, one at a time, by invalid or unusual JSON. The decoder
// must refuse the value with a short error. Otherwise the decoded value must survive encoding and
// decoding, and every count, list, text and time in it must be within its bounds.
func TestEveryDecoderBoundsEveryMember(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300_000)
	list := func(element string, n int) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	bad := []string{
		`9223372036854775807`, `-9223372036854775808`, `1e300`, `-1`, `257`, `"` + long + `"`, `"\u0000"`, `"2562047h47m16s"`, `"-2562047h47m16s"`,
		`"0000-01-01T00:00:00+23:59"`, `"9999-12-31T23:59:59-23:59"`, `"10000-01-01T00:00:00Z"`, `"nosuch"`, `""`, `{}`, `[[]]`,
		list(`"x"`, 2000), list(`{"attempt":1,"node":"x","started":"2026-11-21T07:00:00Z"}`, 2000), list(`{"id":"report:@k","at":"2026-11-21T08:00:00Z","since":"2026-11-21T08:00:00Z"}`, 2000),
		list(`{"from":"2026-11-20T07:00:00Z","plan":{"schedule":"@hourly"}}`, 2000), `"` + strings.Repeat("x", 5000) + `@x"`, `[{"from":"2026-11-20T07:00:00Z","plan":{"schedule":"@hourly","shards":9223372036854775807}}]`,
	}
	for kind, value := range sound {
		if _, err := decoders[kind]([]byte(value)); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		for path, bend := range members(t, value) {
			for _, with := range bad {
				bent := bend(with)
				read, err := decoders[kind](bent)
				if err != nil {
					if !errors.Is(err, job.ErrInvalid) && !errors.Is(err, job.ErrVersion) {
						t.Errorf("%s, %s %.60s: an error of no kind: %v", kind, path, with, err)
					}
					if len(err.Error()) > 2000 {
						t.Errorf("%s, %s %.60s: an error of %d bytes: %.200s", kind, path, with, len(err.Error()), err)
					}
					continue
				}
				bounded(t, fmt.Sprintf("%s, %s %.60s", kind, path, with), kind, read)
			}
		}
	}
}

func TestNoDecoderReadsAnInstantThatIsNotRFC3339(t *testing.T) {
	t.Parallel()
	for kind, value := range sound {
		for path, bend := range members(t, value) {
			for _, with := range []string{`"2031-01-02T3:04:05Z"`, `"2031-01-02T03:04:05,0Z"`, `"2031-01-02T03:04:05.0000000000Z"`, `"2031-01-03T03:04:05+24:00"`, `"2031-01-02T04:04:05+00:60"`} {
				read, err := decoders[kind](bend(with))
				if err != nil {
					continue
				}
				if data, err := read.MarshalJSON(); err != nil || strings.Contains(string(data), "2031-01-02T03:04:05Z") {
					t.Errorf("%s, %s: %s is read as an instant: %s, %v", kind, path, with, data, err)
				}
			}
		}
	}
}

// bounded fails the test if a decoded value cannot be encoded and decoded again, or if a count, list
// or text in it is too large.
func bounded(t *testing.T, name, kind string, read json.Marshaler) {
	t.Helper()
	data, err := read.MarshalJSON()
	if err != nil {
		t.Errorf("%s: it cannot be written again: %v", name, err)
		return
	}
	if _, err := decoders[kind](data); err != nil {
		t.Errorf("%s: what is written of it cannot be read: %v", name, err)
	}
	switch v := read.(type) {
	case job.Record:
		if v.Shards < 0 || v.Shards > job.MaxShards || v.Attempt > 1_000_000 || len(v.Attempts) > 200 || len(v.Error) > 5000 || len(v.Output) > 200_000 || len(v.Node)+len(v.Nonce)+len(v.Queue) > 1000 {
			t.Errorf("%s: %+.300v", name, v)
		}
	case core.Lock:
		if len(v.Holders) > job.MaxConcurrency {
			t.Errorf("%s: %d hold", name, len(v.Holders))
		}
	case exchange.Node:
		if v.Lease < 0 || v.Lease > job.MaxLease || v.Priority > exchange.MaxPriority || len(v.Queues) > 1000 || len(v.Version)+len(v.Tzdata) > 1000 {
			t.Errorf("%s: %+.300v", name, v)
		}
	case job.Settings:
		if err := v.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	case plans.Definition:
		for _, p := range append([]plans.PastPlan{{Plan: v.Job.Plan()}}, v.Past...) {
			if p.Plan.Shards < 0 || p.Plan.Shards == 1 || p.Plan.Shards > job.MaxShards {
				t.Errorf("%s: a plan with %d shards", name, p.Plan.Shards)
			}
		}
		if len(v.Past) > 20 || len(v.Superseded) > 50 || len(v.Pauses) > 50 {
			t.Errorf("%s: %d plans, %d hashes, %d pauses", name, len(v.Past), len(v.Superseded), len(v.Pauses))
		}
	}
}

// members returns all members of an object and of the objects within it, by path. Each has a function
// that returns the whole object with this member replaced.
func members(t *testing.T, object string) map[string]func(with string) []byte {
	t.Helper()
	found := map[string]func(string) []byte{}
	var walk func(path string, value any, whole func(json.RawMessage) any)
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	walk = func(path string, value any, whole func(json.RawMessage) any) {
		if path != "" {
			found[path] = func(with string) []byte { return encode(whole(json.RawMessage(with))) }
		}
		switch v := value.(type) {
		case map[string]any:
			for name, inner := range v {
				walk(path+"."+name, inner, func(with json.RawMessage) any {
					bent := map[string]any{}
					for other, kept := range v {
						bent[other] = kept
					}
					bent[name] = with
					return whole(encode(bent))
				})
			}
		case []any:
			for i, inner := range v {
				walk(fmt.Sprintf("%s[%d]", path, i), inner, func(with json.RawMessage) any {
					bent := append([]any(nil), v...)
					bent[i] = with
					return whole(encode(bent))
				})
			}
		}
	}
	var top any
	if err := json.Unmarshal([]byte(object), &top); err != nil {
		t.Fatal(err)
	}
	walk("", top, func(with json.RawMessage) any { return with })
	return found
}

// A newer program may write a state that this one does not know. The decoder refuses such a value, so
// that no node treats the slot as running.
func TestAnUnknownStateIsLeftToANewerProgram(t *testing.T) {
	t.Parallel()
	for kind, state := range map[string]string{"record": `"state":"retrying"`, "node": `"state":"alive"`} {
		_, err := decoders[kind]([]byte(strings.Replace(sound[kind], state, `"state":"hibernating"`, 1)))
		if !errors.Is(err, job.ErrVersion) || !strings.Contains(err.Error(), `"hibernating"`) {
			t.Errorf("%s: %v", kind, err)
		}
		_, err = decoders[kind]([]byte(strings.Replace(sound[kind], state, `"state":""`, 1)))
		if !errors.Is(err, job.ErrInvalid) {
			t.Errorf("%s without a state: %v", kind, err)
		}
	}
	if _, err := exchange.DecodeRecord([]byte(strings.Replace(sound["record"], "retrying", "pending", 1))); !errors.Is(err, job.ErrInvalid) {
		t.Errorf("a record that says pending, which is never stored: %v", err)
	}
}

// If a record has the largest valid number of attempts, its slot ends. Another claim would write a
// record that the decoder refuses.
func TestASlotEndsBeforeItsAttemptsAreOutOfBounds(t *testing.T) {
	t.Parallel()
	const most = 1_000_000
	for _, state := range []job.State{job.Retrying, job.Running} {
		r, err := exchange.DecodeRecord([]byte(fmt.Sprintf(`{"v":1,"id":"report:@k","queue":"default","state":%q,"attempt":%d,"max_attempts":%d,"node":"a","nonce":"n","published":"2026-11-21T07:00:00Z"}`, state, most, most)))
		if err != nil {
			t.Fatal(err)
		}
		d := core.Delivery{Message: core.Message{Slot: r.Slot}, Queue: "default", Published: at0}
		v := core.View{Now: at0.Add(time.Minute), Self: "b", Horizon: time.Hour, Record: &r, Revision: 9, OwnerDead: true, Handles: true, Entry: &plans.Entry{Definition: plans.Definition{Job: job.Job{Name: "report", Schedule: "@daily", Overlap: job.OverlapAllow}}}}
		if s := core.Decide(d, v); s.Action != core.End || s.Record.State != job.Failed {
			t.Errorf("%s: %v %+v", state, s.Action, s.Record)
		}
		done := core.Complete(r, 9, at0, time.Hour, core.Result{})
		again := core.Reopen(done, "alice", job.MaxAttempts, at0)
		data, err := again.MarshalJSON()
		if err == nil {
			_, err = exchange.DecodeRecord(data)
		}
		if err != nil {
			t.Errorf("a new start: %v", err)
		}
	}
}
