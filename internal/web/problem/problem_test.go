package problem_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/problem"
)

func TestProblemsHaveAStableTypeAndPlainText(t *testing.T) {
	t.Parallel()
	types := map[string]bool{}
	for _, code := range append(fault.Shared(), fault.OnlyHTTP()...) {
		w := httptest.NewRecorder()
		problem.Write(w, code, "job \"a\x1b[31m\r\nb\u202e\": "+strings.Repeat("x", 5000))
		var d problem.Document
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			t.Fatal(err)
		}
		if w.Code != code.Status || d.Status != code.Status || w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: status %d, headers %v, %+v", code.Name, w.Code, w.Header(), d)
		}
		if types[d.Type] || !strings.HasSuffix(d.Type, "#"+code.Name) || d.Title == "" {
			t.Errorf("%s: type %q, title %q", code.Name, d.Type, d.Title)
		}
		types[d.Type] = true
		if strings.ContainsAny(d.Detail, "\x1b\r\n\u202e") || len(d.Detail) > 2100 || !strings.HasPrefix(d.Detail, `job "a\x1b[31m`) {
			t.Errorf("%s: detail %.60q, %d bytes", code.Name, d.Detail, len(d.Detail))
		}
		if retry := w.Header().Get("Retry-After"); (retry != "") != (code.Retry > 0) {
			t.Errorf("%s: Retry-After %q", code.Name, retry)
		}
	}
}
