package wire

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce/job"
)

func TestFullStorageIsReportedWithItsOwner(t *testing.T) {
	t.Parallel()
	for description, test := range map[string]struct {
		code int
		want string
	}{
		"insufficient resources":                     {10023, "the NATS server needs"},
		"insufficient storage resources available":   {10047, "the NATS server needs"},
		"write /data/1.blk: no space left on device": {10077, "the NATS server needs"},
		"resource limits exceeded for account":       {10002, "the NATS account has reached"},
		"maximum bytes exceeded":                     {10077, "the stream has reached"},
	} {
		data := fmt.Sprintf(`{"error":{"code":503,"err_code":%d,"description":%q},"stream":"S","seq":0}`, test.code, description)
		if _, err := PubAck(&nats.Msg{Data: []byte(data)}); !errors.Is(err, job.ErrFull) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %v: %s", description, err, job.ErrFull, test.want)
		}
	}
	conflict := `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}`
	if _, err := PubAck(&nats.Msg{Data: []byte(conflict)}); errors.Is(err, job.ErrFull) {
		t.Errorf("a conflict is %v", err)
	}
}
