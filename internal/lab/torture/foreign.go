package torture

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/internal/lab/proxy"
	"github.com/cronce-io/cronce/internal/lab/torture/plan"
)

// isForeign reports whether a member is a client in another language: every second worker, and
// every second process that only produces. The other processes run this program, and do what the
// client may leave to others.
func (t *torture) isForeign(index int) bool {
	if t.cfg.ForeignCommand == nil {
		return false
	}
	if index >= t.cfg.Workers {
		index -= t.cfg.Workers
	}
	return index%2 == 1
}

// proxyOf starts the proxy of a member. A client in another language connects to the proxy as to a
// server. That is why there may be only one server: from a cluster, the client would learn the
// addresses of the other servers, and connect to them without the proxy.
func (t *torture) proxyOf(index int) (*proxy.Proxy, error) {
	if !t.isForeign(index) {
		return proxy.New()
	}
	return proxy.To(strings.TrimPrefix(t.nc.ConnectedUrl(), "nats://"))
}

// startForeign starts a life of a client in another language. It configures the client by the
// environment variables that docs/conformance.md describes.
func (t *torture) startForeign(spec NodeSpec) (*process, error) {
	cmd := t.cfg.ForeignCommand()
	var jobs, queues []string
	if spec.Work {
		jobs, queues = plan.ForeignNames(t.cases), plan.Queues(slices.Values(t.cases))
	}
	produce := "0"
	if spec.Produce {
		produce = "1"
	}
	cmd.Env = append(os.Environ(),
		"CRONCE_UNDER_TEST_SERVER=nats://"+spec.Proxy, "CRONCE_UNDER_TEST_NAMESPACE="+spec.Namespace, "CRONCE_UNDER_TEST_NAME="+spec.Host,
		"CRONCE_UNDER_TEST_QUEUES="+strings.Join(queues, ","), "CRONCE_UNDER_TEST_JOBS="+strings.Join(jobs, ","), "CRONCE_UNDER_TEST_PRODUCE="+produce,
		fmt.Sprintf("CRONCE_UNDER_TEST_CLOCK_OFFSET_MS=%d", spec.ClockOffset.Milliseconds()),
		"CRONCE_UNDER_TEST_RECORD="+spec.Record, "CRONCE_UNDER_TEST_PROCESS="+spec.Process,
		fmt.Sprintf("CRONCE_UNDER_TEST_BOOT=%d", int64(boot.Now())),
	)
	return t.startCommand(spec.Process, cmd, "")
}
