package link_test

import (
	"testing"

	"github.com/cronce-io/cronce/internal/broker/link"
)

func TestServersTooOldAreKnown(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.10.29": false, "2.11.0": true, "2.15.2": true, "3.0.0-beta": true, "1.4.1": false, "": true,
	} {
		if got := (link.Server{Version: version}).AtLeast(2, 11); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}
