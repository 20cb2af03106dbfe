package client_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/kv"
)

// The event of an order names its author.
func TestOrdersLeaveAnEventWithTheirAuthor(t *testing.T) {
	s := newShop(t)
	c := s.as("server@host")
	for i, step := range []struct {
		by, says string
		do       func(c *client.Client) error
	}{
		{"alice", "update report", func(c *client.Client) error {
			_, err := c.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "* * * * * *"}}, client.ApplyOptions{})
			return err
		}},
		{"alice", "", func(c *client.Client) error { // unchanged
			_, err := c.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "* * * * * *"}}, client.ApplyOptions{})
			return err
		}},
		{"bob", "update report", func(c *client.Client) error {
			_, err := c.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "0 7 * * *"}}, client.ApplyOptions{})
			return err
		}},
		{"bob", "", func(c *client.Client) error {
			_, err := c.Apply(t.Context(), []job.Job{{Name: "report", Schedule: "0 8 * * *"}}, client.ApplyOptions{DryRun: true})
			return err
		}},
		{"carol", "pause report", func(c *client.Client) error { _, err := c.Pause(t.Context(), "report"); return err }},
		{"carol", "", func(c *client.Client) error { _, err := c.Pause(t.Context(), "report"); return err }},
		{"dave", "resume report", func(c *client.Client) error {
			_, err := c.Resume(t.Context(), "report", client.ResumeOptions{})
			return err
		}},
		{"dave", "release report", func(c *client.Client) error { _, err := c.Release(t.Context(), "report"); return err }},
		{"erin", "trigger report report:@k", func(c *client.Client) error {
			_, err := c.Trigger(t.Context(), "report", client.TriggerOptions{Key: "k"})
			return err
		}},
		{"erin", "", func(c *client.Client) error {
			_, err := c.Trigger(t.Context(), "report", client.TriggerOptions{Key: "k"})
			return err
		}},
		{"frank", "cancel report report:@k", func(c *client.Client) error { _, err := c.Cancel(t.Context(), "report:@k", nil); return err }},
		{"frank", "retry report report:@k", func(c *client.Client) error { _, err := c.Retry(t.Context(), "report:@k"); return err }},
		{"gina", "remove report", func(c *client.Client) error { return c.Remove(t.Context(), "report", client.RemoveOptions{}) }},
	} {
		began := s.orders()
		by, err := c.As(step.by)
		if err != nil {
			t.Fatal(err)
		}
		if err := step.do(by); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if step.says == "" {
			if now := s.orders(); len(now) != len(began) {
				t.Errorf("step %d changed nothing, and left %q", i, now[len(began):])
			}
			continue
		}
		natstest.Eventually(t, "the order is kept", func() bool { return len(s.orders()) > len(began) })
		if got := s.orders()[len(began):]; !slices.Equal(got, []string{step.by + " " + step.says}) {
			t.Errorf("step %d left %q, want %q", i, got, step.says)
		}
	}
}

// orders returns author, order, job and slot of the kept orders.
func (s *shop) orders() (all []string) {
	s.Helper()
	for e, err := range s.store.Events(s.Context(), kv.EventFilter{}) {
		if err != nil {
			s.Fatal(err)
		}
		if e.Kind != job.EventOrdered {
			continue
		}
		if age := time.Since(e.Time); age < -time.Minute || age > natstest.Patience {
			s.Errorf("%s has the time %v", e.Order, e.Time)
		}
		all = append(all, strings.TrimSpace(strings.Join([]string{e.Node, e.Order, e.Job, e.ID}, " ")))
	}
	return all
}
