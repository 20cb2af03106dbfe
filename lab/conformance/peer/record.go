package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/attach"
)

func (s *stage) recordFile() string { return filepath.Join(s.dir, "record.jsonl") }

// line is a line of the record that the client writes.
type line struct {
	What    string `json:"what"`
	Slot    string `json:"slot"`
	Attempt int    `json:"attempt"`
	Fence   uint64 `json:"fence"`
	Result  string `json:"result"`
}

// did returns those lines of the record that have this "what" and are about this slot.
func (s *stage) did(what, id string) (all []line) {
	data, err := os.ReadFile(s.recordFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.must(err)
	}
	for text := range strings.Lines(string(data)) {
		var l line
		if !strings.HasSuffix(text, "\n") {
			break // it is being written
		}
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			s.must(fmt.Errorf("read the client's record: %q: %w", text, err))
		}
		if l.What == what && l.Slot == id {
			all = append(all, l)
		}
	}
	return all
}

// starts waits until the handler has started for a slot.
func (s *stage) starts(must, id string) {
	s.await(must, "the handler of "+id+" to start", func() bool { return len(s.did("start", id)) > 0 })
}

// notStarted returns a function for never. It says that the handler of the slot has started, although
// why.
func (s *stage) notStarted(id, why string) func() string {
	return func() string {
		if len(s.did("start", id)) > 0 {
			return "the handler of " + id + " started, although " + why
		}
		return ""
	}
}

// story describes what happened to the slot of the scenario, as "cronce slot explain" does, and lists
// what the client published last.
func (s *stage) story() (lines []string) {
	const most = 25
	if s.about != "" {
		c := client.Attach(attach.Of(s.nc, s.store, attach.Options{Operator: "peer"}))
		if told, err := c.Explain(s.ctx, s.about); err != nil {
			lines = append(lines, fmt.Sprintf("%s: no story: %v", s.about, err))
		} else {
			lines = append(lines, fmt.Sprintf("%s: %s", told.ID, told.State))
			for _, step := range told.Steps {
				lines = append(lines, fmt.Sprintf("  %s  %s", step.Time.UTC().Format("15:04:05.000"), step.Text))
			}
			lines = append(lines, "  "+told.Why)
		}
	}
	said := s.tap.frames(func(f frame) bool {
		return f.isPublish() && !strings.HasPrefix(f.subject, "$JS.API.") && !strings.HasPrefix(f.subject, "$KV."+namespace+"_nodes")
	})
	for _, f := range said[max(0, len(said)-most):] {
		lines = append(lines, f.String())
	}
	if s.client != nil {
		if words := s.client.Said(); words != "" {
			lines = append(lines, "the client's output ends: "+words)
		}
	}
	return lines
}
