package api

import (
	"fmt"
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

func TestFeedRemembersTheNewestEventsThatAreNotKept(t *testing.T) {
	t.Parallel()
	f := newFeed(t.Context(), nil, nil)
	send := func(kind job.EventKind, id string, sequence uint64) {
		f.send(client.Event{Event: job.Event{Kind: kind, ID: id}, Sequence: sequence})
	}
	send(job.EventSucceeded, "a", 0)
	send(job.EventFailed, "kept", 7)
	send(job.EventOutput, "output", 0)
	send(job.EventProgress, "progress", 0)
	send(job.EventRetrying, "b", 0)
	if n := len(f.unkept); n != 2 || f.unkept[0].ID != "a" || f.unkept[1].ID != "b" {
		t.Errorf("remembered: %v", f.unkept)
	}
	for i := range 1000 {
		send(job.EventSucceeded, fmt.Sprint(i), 0)
	}
	if n := len(f.unkept); n != maxUnkept || f.unkept[n-1].ID != "999" {
		t.Errorf("%d are remembered, the last one is %q", n, f.unkept[n-1].ID)
	}
}
