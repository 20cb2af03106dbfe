package main

import (
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

// Without a terminal, doctor cannot ask and requires --yes. It says so before it connects.
func TestDoctorRemovesNothingUnasked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"doctor", "--remove-unreadable"}, {"doctor", "--remove-unreadable", "--force"}, {"doctor", "--yes"}} {
		r := cli{}.run(t, append(args, "--server", "nats://127.0.0.1:1")...)
		if r.code != base.ExitUsage || r.stdout != "" || !strings.Contains(r.stderr, "--yes") {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
