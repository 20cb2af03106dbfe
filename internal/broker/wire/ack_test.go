package wire

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestAnswersToWritesAreReadAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]uint64{
		`{"stream":"KV_cronce_ledger","seq":12}`:                   12,
		`{"stream":"S", "seq": 12}`:                                12,
		`{"stream":"S","domain":"hub","seq":18446744073709551615}`: 18446744073709551615,
		`{"stream":"S","seq":3,"duplicate":true}`:                  3,
		`{"seq":4,"stream":"S"}`:                                   4,
	} {
		got, err := PubAck(&nats.Msg{Data: []byte(data)})
		var full struct {
			Domain    string
			Duplicate bool
		}
		_ = json.Unmarshal([]byte(data), &full)
		if err != nil || got != (Ack{seq: want, Domain: full.Domain, Duplicate: full.Duplicate}) {
			t.Errorf("%s: %+v, %v", data, got, err)
		}
	}
	for _, data := range []string{``, `{}`, `{"stream":"S","seq":}`, `{"stream":"S","seq":0}`, `{"stream":"S","seq":-1}`, `{"stream":"","seq":1`, `+OK`} {
		if got, err := PubAck(&nats.Msg{Data: []byte(data)}); !errors.Is(err, jetstream.ErrInvalidJSAck) {
			t.Errorf("%s: %+v, %v", data, got, err)
		}
	}
	refused := `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 7"},"stream":"S","seq":0}`
	if _, err := PubAck(&nats.Msg{Data: []byte(refused)}); Classify(err) != conflict {
		t.Errorf("a conflict is read as %v", err)
	}
	noResponder := &nats.Msg{Header: nats.Header{"Status": {"503"}}}
	if _, err := PubAck(noResponder); !errors.Is(err, jetstream.ErrNoStreamResponse) || Classify(err) != Unanswered {
		t.Errorf("a missing responder is read as %v", err)
	}
}
