package main

import (
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// A run that is too short ends before anything is started.
func TestTortureOfItsOwnServersIgnoresTheOnesOfTheEnvironment(t *testing.T) {
	t.Parallel()
	c := cli{env: map[string]string{"CRONCE_SERVER": "nats://127.0.0.1:1"}}
	r := c.run(t, "torture", "--servers", "1", "--duration", "1s")
	if r.code != base.ExitUsage || !strings.Contains(r.stderr, "invalid --duration 1s") || strings.Contains(r.stderr, "excludes") {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(r.stderr, "ignoring the server in the environment") {
		t.Errorf("stderr does not say that the server in the environment is ignored: %s", r.stderr)
	}
	r = c.run(t, "torture", "--servers", "1", "--server", "nats://127.0.0.1:1")
	if r.code != base.ExitUsage || !strings.Contains(r.stderr, "excludes --server") {
		t.Errorf("both were given: %+v", r)
	}
}
