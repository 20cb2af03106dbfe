package api

import (
	"reflect"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/job"
)

// operations lists all operations.
func operations() []operation {
	return slices.Concat(jobOperations(), runOperations(), slotOperations(), fleetOperations(), eventOperations(), documentOperations())
}

// shapes describe the types that write their own JSON. A test compares them with answers.
var shapes = map[reflect.Type]reflect.Type{
	reflect.TypeFor[client.JobDetails](): reflect.TypeFor[jobShape](),
	reflect.TypeFor[client.NodeRow]():    reflect.TypeFor[nodeShape](),
	reflect.TypeFor[job.Job]():           reflect.TypeFor[object](),
	reflect.TypeFor[job.Plan]():          reflect.TypeFor[object](),
}

func instead(t reflect.Type) reflect.Type {
	if s, ok := shapes[t]; ok {
		return s
	}
	return t
}

// object is any JSON object.
type object map[string]any

type jobShape struct {
	Job        string             `json:"job"`
	Revision   uint64             `json:"revision" doc:"grows with each write of a job, across all jobs; also the ETag"`
	Written    time.Time          `json:"written"`
	Broken     string             `json:"broken,omitempty" doc:"why the stored definition cannot be read"`
	Owner      string             `json:"owner,omitempty" doc:"which writers may change the job: file, code, operator, or released (any)"`
	Node       string             `json:"node,omitempty" doc:"the node or operator that wrote the job"`
	Definition object             `json:"definition,omitempty" doc:"the job, with the members of a job file"`
	Plans      []planShape        `json:"plans,omitempty" doc:"the job's plans over time, oldest first"`
	Paused     *currentPauseShape `json:"paused,omitempty"`
	Pauses     []client.Period    `json:"pauses,omitempty"`
	Handlers   []string           `json:"handlers,omitempty" doc:"the live nodes that would run the job"`
	Next       []time.Time        `json:"next,omitempty" doc:"the next slots, at most five"`
	Last       []client.SlotRow   `json:"last,omitempty" doc:"the newest slots that have a record, at most ten, oldest first"`
}

type planShape struct {
	client.Period
	Plan object `json:"plan"`
}

type currentPauseShape struct {
	Since  time.Time `json:"since"`
	Missed int       `json:"missed"`
	Runs   int       `json:"runs"`
}

// nodeShape describes a stored node. A former node has only node, state, fenced_by and fenced_at, so
// document requires only the first two.
type nodeShape client.NodeRow
