package httpapi_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/apitest"
	"github.com/cronce-io/cronce/job"
)

// wrongDocument breaks the document in a way that its JSON does not show.
func wrongDocument(data []byte) []byte {
	return []byte(strings.Replace(string(data), `"in": "query"`, `"in": "question"`, 1))
}

func TestDocumentIsValidForLibopenapi(t *testing.T) {
	t.Parallel()
	validate := func(data []byte) (problems []string) {
		doc, err := libopenapi.NewDocument(data)
		if err != nil {
			return []string{err.Error()}
		}
		if _, err := doc.BuildV3Model(); err != nil {
			return []string{err.Error()}
		}
		v, errs := validator.NewValidator(doc)
		for _, err := range errs {
			problems = append(problems, err.Error())
		}
		if ok, found := v.ValidateDocument(); !ok {
			for _, f := range found {
				problems = append(problems, f.Error())
			}
		}
		return problems
	}
	data := apitest.Document(t)
	if problems := validate(data); len(problems) > 0 {
		t.Errorf("the document: %s", strings.Join(problems, "\n"))
	}
	if len(validate(wrongDocument(data))) == 0 {
		t.Error("a wrong document is valid too")
	}
}

func TestStatesThatListSlotsTakesAreAllStates(t *testing.T) {
	t.Parallel()
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string
				Schema struct{ Items struct{ Enum []job.State } }
			}
		}
	}
	if err := json.Unmarshal(apitest.Document(t), &doc); err != nil {
		t.Fatal(err)
	}
	for _, p := range doc.Paths["/slots"]["get"].Parameters {
		if p.Name != "state" {
			continue
		}
		if got := p.Schema.Items.Enum; !slices.Equal(got, client.SlotStates()) {
			t.Errorf("listSlots takes the states %v, client.SlotStates has %v", got, client.SlotStates())
		}
		return
	}
	t.Error("listSlots has no parameter state")
}
