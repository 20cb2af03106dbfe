package main

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"
)

// Without a terminal, and without --yes, nobody can be asked: that is known before a
// server is asked.
func TestDoctorRemovesNothingUnasked(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"doctor", "--remove-unreadable"}, {"doctor", "--remove-unreadable", "--force"}, {"doctor", "--yes"}} {
		r := cli{}.run(t, append(args, "--server", "nats://127.0.0.1:1")...)
		if r.code != exitUsage || r.stdout != "" || !strings.Contains(r.stderr, "--yes") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	for text, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "no": false, "y": true} {
		a := &app{stderr: io.Discard}
		yes, err := a.confirm(context.Background(), bufio.NewReader(strings.NewReader(text)), func() {}, "?")
		if yes != want || err != nil {
			t.Errorf("%q: %v, %v", text, yes, err)
		}
	}
	a := &app{stderr: io.Discard}
	if yes, err := a.confirm(context.Background(), bufio.NewReader(strings.NewReader("")), func() {}, "?"); yes || err == nil {
		t.Errorf("no answer: %v, %v", yes, err)
	}
}
