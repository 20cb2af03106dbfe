package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/web"
)

func TestReferencePageShowsEveryOperation(t *testing.T) {
	t.Parallel()
	h := web.New(&client.Client{})
	defer h.Close()
	get := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", path, w.Code)
		}
		return w.Body.String()
	}
	var d struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal([]byte(get("/api/v1/openapi.json")), &d); err != nil {
		t.Fatal(err)
	}
	page := get("/api")
	for path, methods := range d.Paths {
		for _, o := range methods {
			if !strings.Contains(page, `id="`+o.OperationID+`"`) {
				t.Errorf("the page does not have %s of %s", o.OperationID, path)
			}
		}
	}
	if strings.Count(page, "<script") != strings.Count(page, "<script src=") {
		t.Error("the page has an inline script")
	}
}
