// Package apitest serves the HTTP API of a fleet in tests.
package apitest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/internal/web/api"
	"github.com/cronce-io/cronce/job"
)

// Fleet runs a scheduler with the jobs "quick", which succeeds, "broken", which fails, and
// "slow", which runs until its slot is cancelled, and "deaf", which runs to the end of the test.
// The scheduler ends with the test.
func Fleet(t *testing.T, nc *nats.Conn) {
	t.Helper()
	s, err := cronce.New(t.Context(), nc, cronce.WithGrace(0))
	if err != nil {
		t.Fatal(err)
	}
	finish := make(chan struct{})
	schedules := map[string]string{"secondly": "* * * * * *"} // the others: yearly
	for name, h := range map[string]job.Handler{
		"secondly": func(context.Context, job.Run) error { return nil },
		"deaf":     func(context.Context, job.Run) error { <-finish; return nil },
		"quick":    func(context.Context, job.Run) error { return nil },
		"broken":   func(context.Context, job.Run) error { return job.Permanent(errors.New("no <b>paper</b>")) },
		"slow":     func(ctx context.Context, _ job.Run) error { <-ctx.Done(); return context.Cause(ctx) },
	} {
		if err := s.Handle(job.Job{Name: name, Schedule: cmp.Or(schedules[name], "0 0 1 1 *"), Overlap: job.OverlapAllow}, h); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		close(finish)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Serve returns a server of the API on a new namespace with a fleet. The user of a request
// is that of its header User.
func Serve(t *testing.T) (*httptest.Server, *client.Client) {
	t.Helper()
	s := natstest.Run(t)
	Fleet(t, s.Conn())
	c, err := client.New(t.Context(), s.Conn(), client.WithOperator("server@host"))
	if err != nil {
		t.Fatal(err)
	}
	a := api.New(api.Config{Client: c, User: func(r *http.Request) string { return r.Header.Get("User") }, Version: "1.2.3"})
	server := httptest.NewServer(a)
	t.Cleanup(func() { a.Close(); server.Close() })
	natstest.Eventually(t, "a fleet with five jobs", func() bool {
		list, err := c.Jobs(t.Context(), client.JobFilter{})
		return err == nil && len(list.Jobs) == 5 && list.Jobs[0].Handlers == 1
	})
	return server, c
}

// Document returns the document as the server sends it.
func Document(t *testing.T) []byte {
	t.Helper()
	a := api.New(api.Config{Version: "1.2.3"})
	defer a.Close()
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/openapi.json", nil))
	data, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, err)
	}
	return data
}
