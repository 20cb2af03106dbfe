//go:build long && !windows

package integration

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// outside is a program of another module. It implements cronce.Observer, triggers a run, and reads its outcome.
const outside = `package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cronce-io/cronce"
	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

type counter struct {
	cronce.NopObserver
	started atomic.Int64
}

func (c *counter) Started(string, time.Duration, bool) { c.started.Add(1) }

func run(ctx context.Context, nc *nats.Conn) error {
	var c counter
	s, err := cronce.New(ctx, nc, cronce.WithObserver(&c))
	if err != nil {
		return err
	}
	done := make(chan job.Slot, 1)
	err = s.Handle(job.Job{Name: "greet", Schedule: "@at 2100-01-01T00:00:00Z"}, func(_ context.Context, run job.Run) error {
		fmt.Printf("%s says %s\n", run.Slot, run.Payload)
		done <- run.Slot
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for {
		t, err := s.Trigger(ctx, "greet", cronce.TriggerOptions{Key: "once", Payload: json.RawMessage("\"hello\"")})
		if err == nil {
			fmt.Printf("ordered %s\n", t.Slot)
			go waited(ctx, nc, t.ID())
			break
		}
		time.Sleep(10 * time.Millisecond) // Run registers the job
	}
	<-done
	fmt.Println(<-outcome)
	fmt.Printf("started %d, version %q\n", c.started.Load(), s.Stats().Version)
	cancel()
	return <-ended
}

var outcome = make(chan string, 1)

// waited waits for the run with a client of its own.
func waited(ctx context.Context, nc *nats.Conn, id string) {
	var slot client.SlotDetails
	c, err := client.New(ctx, nc, client.WithOperator("outside"))
	if err == nil {
		slot, err = c.Wait(ctx, id)
	}
	var last client.SlotRow
	if err == nil {
		last, err = c.Last(ctx, slot.Job)
	}
	outcome <- fmt.Sprint("waited for ", slot.ID, ": ", slot.State, last.Error, err)
}

func main() {
	nc, err := nats.Connect(URL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	if err := run(context.Background(), nc); err != nil {
		log.Fatal(err)
	}
}
`

// TestOutsideModuleObservesTriggersAndReads builds and runs a program of another module,
// which links no YAML parser, no command line and no server.
func TestOutsideModuleObservesTriggersAndReads(t *testing.T) {
	t.Parallel()
	s := newServedSite(t)
	dir := outsideModule(t, strings.Replace(outside, "URL", `"`+s.url+`"`, 1))
	for _, dep := range strings.Fields(goIn(t, dir, "list", "-deps", ".")) {
		if strings.HasPrefix(dep, "github.com/goccy/go-yaml") || strings.HasPrefix(dep, "github.com/spf13/") || strings.HasPrefix(dep, "github.com/nats-io/nats-server/") {
			t.Errorf("a program of another module links %s", dep)
		}
	}
	out := goIn(t, dir, "run", ".")
	for _, want := range []string{"ordered greet:@once", `greet:@once says "hello"`, "waited for greet:@once: succeeded", "started 1, "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

// outsideModule returns the folder of a new module with this main.go, which requires the module
// under test.
func outsideModule(t *testing.T, program string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		return string(filetest.Read(t, filepath.Join(root, name)))
	}
	mod := regexp.MustCompile(`(?m)^module .*$`).ReplaceAllString(read("go.mod"), "module example.org/outside")
	mod += "\nrequire github.com/cronce-io/cronce v0.0.0\n\nreplace github.com/cronce-io/cronce => " + root + "\n"
	for name, text := range map[string]string{"go.mod": mod, "go.sum": read("go.sum"), "main.go": program} {
		filetest.Write(t, filepath.Join(dir, name), text)
	}
	return dir
}
