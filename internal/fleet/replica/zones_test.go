package replica

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cronce-io/cronce/internal/core/exchange"
)

func TestZonesAreBehindWhileALiveProducerHasNewerData(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := newZones("2026b", slog.New(slog.DiscardHandler))
		if !z.behind() {
			t.Error("behind is false before the nodes were read: a producer would move the watermark")
		}
		failed := false
		z.readAll(t.Context(), func(context.Context) ([]exchange.NodeEvent, error) {
			if !failed {
				failed = true
				return nil, errors.New("not answered")
			}
			return nil, nil
		})
		for _, tt := range []struct {
			what string
			node exchange.Node
			want bool
		}{
			{"the same data", exchange.Node{State: exchange.NodeAlive, Producer: true, Tzdata: "2026b"}, false},
			{"older data", exchange.Node{State: exchange.NodeAlive, Producer: true, Tzdata: "2026a"}, false},
			{"a worker with newer data", exchange.Node{State: exchange.NodeAlive, Worker: true, Tzdata: "2026c"}, false},
			{"a producer with newer data", exchange.Node{State: exchange.NodeAlive, Producer: true, Tzdata: "2026c"}, true},
			{"the same producer, stopped", exchange.Node{State: exchange.NodeStopped, Producer: true, Tzdata: "2026c"}, false},
			{"the same producer, alive again", exchange.Node{State: exchange.NodeAlive, Producer: true, Tzdata: "2027a"}, true},
		} {
			z.note(exchange.NodeEvent{Name: "a", Node: tt.node})
			if got := z.behind(); got != tt.want {
				t.Errorf("%s: behind is %v, want %v", tt.what, got, tt.want)
			}
		}
		time.Sleep(zonesFor + time.Second)
		if z.behind() {
			t.Error("behind is true because of a producer that was not seen for minutes")
		}
	})
}
