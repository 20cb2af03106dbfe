package replica

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core"
)

func TestZonesAreBehindWhileALiveProducerHasNewerData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := newZones("2026b", slog.New(slog.DiscardHandler))
		for _, tt := range []struct {
			what string
			node core.Node
			want bool
		}{
			{"the same data", core.Node{State: core.NodeAlive, Producer: true, Tzdata: "2026b"}, false},
			{"older data", core.Node{State: core.NodeAlive, Producer: true, Tzdata: "2026a"}, false},
			{"a worker with newer data", core.Node{State: core.NodeAlive, Worker: true, Tzdata: "2026c"}, false},
			{"a producer with newer data", core.Node{State: core.NodeAlive, Producer: true, Tzdata: "2026c"}, true},
			{"the same producer, stopped", core.Node{State: core.NodeStopped, Producer: true, Tzdata: "2026c"}, false},
			{"the same producer, alive again", core.Node{State: core.NodeAlive, Producer: true, Tzdata: "2027a"}, true},
		} {
			z.note(core.NodeEvent{Name: "a", Node: tt.node})
			if got := z.behind(); got != tt.want {
				t.Errorf("%s: behind is %v, want %v", tt.what, got, tt.want)
			}
		}
		time.Sleep(zonesFor + time.Second)
		if z.behind() {
			t.Error("a producer counts that has not been seen for minutes")
		}
	})
}
