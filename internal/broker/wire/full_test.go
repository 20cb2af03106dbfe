package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/job"
)

func TestRefusalForWantOfStorageSaysWhoseIsFull(t *testing.T) {
	t.Parallel()
	for description, test := range map[string]struct {
		code  int
		whose string
	}{
		"insufficient resources":                     {10023, "that of the NATS server"},
		"insufficient storage resources available":   {10047, "that of the NATS server"},
		"write /data/1.blk: no space left on device": {10077, "that of the NATS server"},
		"resource limits exceeded for account":       {10002, "the NATS account"},
		"maximum bytes exceeded":                     {10077, "the stream's own limit"},
	} {
		data := fmt.Sprintf(`{"error":{"code":503,"err_code":%d,"description":%q},"stream":"S","seq":0}`, test.code, description)
		if _, err := PubAck(&nats.Msg{Data: []byte(data)}); !errors.Is(err, job.ErrFull) || !strings.Contains(err.Error(), test.whose) {
			t.Errorf("%s: %v, want %v: %s", description, err, job.ErrFull, test.whose)
		}
	}
	conflict := `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}`
	if _, err := PubAck(&nats.Msg{Data: []byte(conflict)}); errors.Is(err, job.ErrFull) {
		t.Errorf("a conflict is %v", err)
	}
}
