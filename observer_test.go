package cronce_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
)

func TestDocumentationOfStatsNamesEachField(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("observer.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(source), "// Stats is the state")
	words := strings.FieldsFunc(text, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') })
	named := map[string]bool{}
	for _, w := range words {
		named[w] = true
	}
	for f := range reflect.TypeFor[cronce.Stats]().Fields() {
		if !named[f.Name] {
			t.Errorf("the documentation of Stats does not name %s", f.Name)
		}
	}
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
			if err := r.Handle(job.Job{Name: "hello", Schedule: "@hourly"}, func(context.Context, job.Run) error { return nil }); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- r.Run(ctx) }()
			natstest.Eventually(t, natstest.Patience, "an error that names the subject", func() bool {
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
