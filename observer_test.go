package cronce_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

// follower is an Observer that sends the function that Follow gets.
type follower struct {
	cronce.NopObserver
	stats chan func() cronce.Stats
}

func (f follower) Follow(stats func() cronce.Stats) { f.stats <- stats }

func TestStatsAreThoseOfTheReplicaThatRuns(t *testing.T) {
	t.Parallel()
	o := follower{stats: make(chan func() cronce.Stats, 1)}
	s, _ := scheduler(t, natstest.Run(t), cronce.WithObserver(o))
	ran := make(chan job.Run, 100)
	handle(t, s, everySecond("tick"), func(_ context.Context, run job.Run) error { ran <- run; return nil })
	if got := s.Stats(); !reflect.DeepEqual(got, cronce.Stats{}) {
		t.Errorf("before Run: %+v", got)
	}
	running(t, s)
	run := <-ran
	for name, stats := range map[string]func() cronce.Stats{"Stats": s.Stats, "Follow": <-o.stats} {
		// A slot may run before the producer has the answer to its publication.
		natstest.Eventually(t, "the publication to be counted", func() bool { return stats().Producer.Published > 0 })
		if got := stats(); !got.Connected || !got.Produces || got.Node != run.Node {
			t.Errorf("%s: %+v", name, got)
		}
	}
	natstest.Eventually(t, "the watermark and the backlog of the queue", func() bool {
		got := s.Stats()
		_, known := got.Queues[job.DefaultQueue]
		return known && !got.Watermark.IsZero()
	})
}

func TestReadyNamesWhatTheLoginMayNotDo(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"$KV.cronce_nodes.", "$JS.API.CONSUMER.INFO.cronce_slots.", "$JS.API.CONSUMER.MSG.NEXT.cronce_slots."} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			s := natstest.Run(t, func(o *server.Options) {
				may := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject + ">"}}}
				o.Users = []*server.User{{Username: "all", Password: "p"}, {Username: "some", Password: "p", Permissions: may}}
			})
			if _, err := cronce.New(t.Context(), s.Conn(nats.UserInfo("all", "p"))); err != nil {
				t.Fatal(err)
			}
			r, err := cronce.New(t.Context(), s.Conn(nats.UserInfo("some", "p")))
			if err != nil {
				t.Fatal(err)
			}
			handle(t, r, job.Job{Name: "hello", Schedule: "@hourly"}, func(context.Context, job.Run) error { return nil })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			natstest.Eventually(t, "an error that names the subject", func() bool {
				err := r.Ready()
				return errors.Is(err, job.ErrDenied) && strings.Contains(err.Error(), subject)
			})
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWithQueuesSetsTheQueuesAsTheyWereAtTheCall(t *testing.T) {
	t.Parallel()
	queues := []string{"reports"}
	option := cronce.WithQueues(queues...)
	queues[0] = "other"
	s, _ := scheduler(t, natstest.Run(t), option)
	if err := s.Handle(everySecond("tick"), nothing); err != nil { // its queue is the default one
		t.Fatal(err)
	}
	running(t, s)
	natstest.Eventually(t, "queues", func() bool { return len(s.Stats().Withheld) > 0 })
	if got := s.Stats().Withheld; !maps.Equal(got, map[string]bool{"reports": false}) {
		t.Errorf("works on %v, want the queue reports only", got)
	}
}
