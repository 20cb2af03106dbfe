package api

import (
	"context"
	"net/http"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
)

// Diagnosis is what the doctor found.
type Diagnosis struct {
	Rows    []client.Finding `json:"rows" doc:"the findings, the worst first"`
	OK      bool             `json:"ok" doc:"there is no error and no warning among them"`
	Server  string           `json:"server" doc:"the name of the NATS server that answered"`
	Version string           `json:"version" doc:"its version"`
}

func examine(ctx context.Context, c *call, _ struct{}) (Diagnosis, error) {
	d, err := c.Doctor(ctx, client.DoctorOptions{})
	if d.Findings == nil {
		d.Findings = []client.Finding{}
	}
	return Diagnosis{d.Findings, d.OK, d.Server, d.Version}, err
}

type nodesIn struct {
	paging
	Former bool `query:"former" doc:"true: also the nodes that were declared dead and are no longer stored"`
}

func fleetOperations() []operation {
	return []operation{
		newOperation("listNodes", http.MethodGet, "/nodes", "List the nodes in the order of their start",
			func(ctx context.Context, c *call, in nodesIn) (row.Page[client.NodeRow], error) {
				list, err := c.Nodes(ctx, client.NodeFilter{After: in.cursor(), Former: in.Former})
				return newPage(c, in.paging, list.Nodes, "", list.Unreadable), blame("after", err)
			}),
		newOperation("getDoctor", http.MethodGet, "/doctor", "Inspect the broker, the stored data and the fleet", examine).
			says("It reads all records, so ask every few minutes at most. It changes nothing."),
		newOperation("verifySlots", http.MethodGet, "/verify", "Check that every slot of a range has exactly one outcome", verifySlots).
			says("It computes which slots should exist and compares them with the ledger. It reads all records of the range, takes up to " + verifyPatience.String() + ", and changes nothing.").
			asks("from=2026-11-21T00:00:00Z&to=2026-11-21T08:00:00Z").fails(fault.NotFound),
		newOperation("repairSlots", http.MethodPost, "/verify:repair", "Publish the missing and stuck slots of a range again", repairSlots).
			says("It verifies the range, and publishes the slots that are missing, or have neither an outcome nor a message. Workers treat them like any other slot, by their record. " +
				"The answer is what the verification found before the repair: verify again to see the result. You can safely repeat the request.").
			fails(fault.NotFound).
			curl(`-X POST -H 'Content-Type: application/json' -d '{"from": "2026-11-21T00:00:00Z", "to": "2026-11-21T08:00:00Z"}'`),
	}
}
