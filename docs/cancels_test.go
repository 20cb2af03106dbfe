package docs_test

import (
	"encoding/json"
	"testing"

	"github.com/cronce-io/cronce/internal/core"
)

// cancelCase is one request to a node to end a slot that it runs.
type cancelCase struct {
	Name    string          `json:"name"`
	Request json.RawMessage `json:"request"`

	// What the node reads out of it; refused, in place of these.
	Key     string `json:"key,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`
	Cause   string `json:"cause,omitempty"`
	Refused string `json:"refused,omitempty"`
}

func TestCancels(t *testing.T) {
	t.Parallel()
	hold(t, "cancels.json", answerCancel)
}

func answerCancel(t *testing.T, c cancelCase) cancelCase {
	t.Helper()
	c.Key, c.Fence, c.Cause, c.Refused = "", 0, "", ""
	slot, req, err := core.DecodeCancel(c.Request)
	if c.Refused = refusal(t, err); c.Refused == "" {
		c.Key, c.Fence, c.Cause = slot.Key(), req.Fence, req.Cause().Error()
	}
	return c
}
