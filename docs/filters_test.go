//go:build unix

package docs_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// offered says how each place that lists things offers one field of a filter. Empty: it does not.
type offered struct{ field, flag, parameter, member string }

// TestFilterOfAListingIsOfferedEverywhere fails if a filter of package client has a field that is not in the
// table, or if the command line, the HTTP API or the NATS service lacks what the table says.
func TestFilterOfAListingIsOfferedEverywhere(t *testing.T) {
	t.Parallel()
	operations := map[string]apiOperation{}
	for _, methods := range readDocument(t, apiServer(t)).Paths {
		for _, o := range methods {
			operations[o.ID] = o
		}
	}
	commands, protocol := string(filetest.Read(t, "cli.md")), string(filetest.Read(t, "protocol.md"))
	for _, list := range []struct {
		filter                      reflect.Type
		command, operation, subject string
		fields                      []offered
	}{
		{reflect.TypeFor[client.JobFilter](), "job ls", "listJobs", "NS.api.job.ls", []offered{
			{"After", "", "after", "after"},
			{"Now", "", "", ""},    // for callers that compare the answer with a clock of their own
			{"NoLast", "", "", ""}, // for callers that read the ledger themselves
		}},
		{reflect.TypeFor[client.SlotFilter](), "slot ls", "listSlots", "NS.api.slot.ls", []offered{
			{"Job", "--job", "job", "job"},
			{"States", "--state", "state", "states"},
			{"Since", "--since", "since", "since"},
			{"EndedSince", "--ended-since", "ended_since", "ended_since"},
			{"After", "", "after", "after"},
			{"Limit", "--limit", "limit", "limit"},
			{"Newest", "--newest", "newest", ""}, // the answer of a service is one page, and Newest has no next one
		}},
		{reflect.TypeFor[client.NodeFilter](), "node ls", "listNodes", "NS.api.node.ls", []offered{
			{"After", "", "after", "after"},
			{"Former", "--all", "former", ""}, // former nodes are read from events
		}},
	} {
		_, help, found := strings.Cut(commands, "\n## cronce "+list.command+"\n")
		if !found {
			t.Fatalf("cli.md has no section of cronce %s", list.command)
		}
		help, _, _ = strings.Cut(help, "\n## ")
		row := regexp.MustCompile(`(?m)^\|.*` + regexp.QuoteMeta("`"+list.subject+"`") + `.*`).FindString(protocol)
		var parameters, fields []string
		for _, p := range operations[list.operation].Parameters {
			parameters = append(parameters, p.Name)
		}
		for _, f := range list.fields {
			fields = append(fields, f.field)
			if f.flag != "" && !regexp.MustCompile(`(?m)^ +`+f.flag+` `).MatchString(help) {
				t.Errorf("cronce %s has no flag %s", list.command, f.flag)
			}
			if f.parameter != "" && !slices.Contains(parameters, f.parameter) {
				t.Errorf("%s has no parameter %s", list.operation, f.parameter)
			}
			if f.member != "" && !strings.Contains(row, `"`+f.member+`"`) {
				t.Errorf("the protocol's row of %s does not name %s", list.subject, f.member)
			}
		}
		for i := range list.filter.NumField() {
			if name := list.filter.Field(i).Name; !slices.Contains(fields, name) {
				t.Errorf("%v.%s: say in this table which flag, parameter and member offer it", list.filter, name)
			}
		}
	}
}
