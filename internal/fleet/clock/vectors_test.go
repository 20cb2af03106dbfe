package clock

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

var rewrite = flag.Bool("rewrite", false, "write docs/protocol/clocks.json anew; the diff is a change of the protocol")

// clockVector is the estimate of a node at At, by its own clock, after some heartbeats.
type clockVector struct {
	Name       string      `json:"name"`
	Heartbeats []heartbeat `json:"heartbeats"`
	At         time.Time   `json:"at"`
	Offset     string      `json:"offset"`
	Error      string      `json:"error"`
}

// heartbeat has the times of a heartbeat: two by the node's clock, and the broker's timestamp.
type heartbeat struct {
	Sent         time.Time `json:"sent"`
	Acknowledged time.Time `json:"acknowledged"`
	Stamp        time.Time `json:"stamp"`
}

func TestTheClockAnswersTheProtocolsVectors(t *testing.T) {
	t.Parallel()
	const file = "../../../docs/protocol/clocks.json"
	data := filetest.Read(t, file)
	var vectors []clockVector
	if err := json.Unmarshal(data, &vectors); err != nil || len(vectors) == 0 {
		t.Fatal(len(vectors), err)
	}
	for i := range vectors {
		v := &vectors[i]
		c, at, _ := simulated(0)
		own := func(instant time.Time) time.Duration { return instant.Sub(epoch) }
		for _, h := range v.Heartbeats {
			c.Observe(own(h.Sent), own(h.Acknowledged), h.Stamp)
		}
		at(own(v.At))
		v.Offset, v.Error = c.Offset().String(), c.Error().String()
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	if err := enc.Encode(vectors); err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(b.Bytes(), data) {
		t.Errorf("the code says\n%s", b.Bytes())
	}
}
