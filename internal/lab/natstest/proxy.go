package natstest

import (
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/proxy"
)

// NewProxy starts a proxy in front of the server at url. The end of the test closes it.
func NewProxy(t testing.TB, url string) *proxy.Proxy {
	t.Helper()
	p, err := proxy.To(strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
