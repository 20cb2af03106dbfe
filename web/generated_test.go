package web_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/web"
)

const compilerOptions = `{"compilerOptions": {"strict": true, "module": "nodenext", "target": "es2022", "lib": ["es2022", "dom", "dom.iterable"],
	"skipLibCheck": true, "allowImportingTsExtensions": true, "rewriteRelativeImportExtensions": true, "types": []}, "files": ["drive.ts"]}`

// generatedFleet is a node with a handler, and a server of its API.
func generatedFleet(t *testing.T) (url string) {
	t.Helper()
	nc := natstest.Run(t).Conn()
	s, err := cronce.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	type person struct {
		Name string `json:"name"`
	}
	err = cronce.HandleFunc(s, job.Job{Name: "greet", Schedule: job.OnDemand}, func(_ context.Context, run job.Run, p person) error {
		fmt.Fprintln(run.Output, "hello", p.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	c, err := client.New(t.Context(), nc)
	if err != nil {
		t.Fatal(err)
	}
	natstest.Eventually(t, "the handler", func() bool {
		d, err := c.Job(t.Context(), "greet")
		return err == nil && len(d.Handlers) == 1
	})
	h := web.New(c)
	site := httptest.NewServer(h)
	t.Cleanup(func() { h.Close(); site.Close() })
	return site.URL
}
