package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/schema"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/job"
)

const about = `Every order and every question of Cronce. Rows are the lines that the command line
prints with -o json. Members are only added within version 1: ignore those that you do not know.`

func document(all []operation, version string) []byte {
	b := &schema.Builder{Shapes: shapes, Named: map[string]schema.Object{}}
	paths := map[string]schema.Object{}
	for _, o := range all {
		if paths[o.path] == nil {
			paths[o.path] = schema.Object{}
		}
		paths[o.path][strings.ToLower(o.method)] = describe(b, o)
	}
	b.Named["Node"]["required"] = []string{"node", "state"}
	data, err := json.MarshalIndent(schema.Object{
		"openapi": "3.1.0",
		"info": schema.Object{
			"title": "Cronce", "version": version, "description": strings.ReplaceAll(about, "\n", " "),
			"license": schema.Object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"servers":  []schema.Object{{"url": "../v1", "description": "the server that this document came from"}},
		"paths":    paths,
		"security": []schema.Object{{}, {"bearer": []string{}}, {"basic": []string{}}},
		"components": schema.Object{
			"schemas": b.Named,
			"securitySchemes": schema.Object{
				"bearer": schema.Object{"type": "http", "scheme": "bearer", "description": "a token of --http-token-file, or an ID token of the OpenID provider"},
				"basic":  schema.Object{"type": "http", "scheme": "basic", "description": "a user of --http-basic-file"},
			},
		},
	}, "", "  ")
	if err != nil {
		panic(err) // maps and strings can always be encoded
	}
	return append(data, '\n')
}

// describe returns an operation's part of the document.
func describe(b *schema.Builder, o operation) schema.Object {
	out := schema.Object{"operationId": o.id, "summary": o.summary, "tags": []string{tag(o.path)}}
	if o.text != "" {
		out["description"] = o.text
	}
	out["x-codeSamples"] = []schema.Object{{"lang": "Shell", "source": o.sample()}}
	var params []schema.Object
	for _, p := range o.params {
		if p.in == "body" {
			out["requestBody"] = schema.Object{
				"required":    p.Tag.Get("required") != "",
				"description": p.Tag.Get("doc"),
				"content":     content("application/json", b.Of(p.Type)),
			}
			continue
		}
		params = append(params, schema.Object{
			"name": p.name, "in": p.in, "required": p.in == "path",
			"description": p.Tag.Get("doc"), "schema": paramSchema(b, p),
		})
	}
	if params != nil {
		out["parameters"] = params
	}
	responses := schema.Object{}
	for _, a := range o.answers {
		responses[fmt.Sprint(a.status)] = o.response(b, a)
	}
	for _, c := range o.codes() {
		responses[fmt.Sprint(c.Status)] = problemResponse(b, c)
	}
	out["responses"] = responses
	return out
}

// codes returns the codes with which the operation can fail, in the order of their status. Of two
// codes with the same status, it returns the first.
func (o operation) codes() []fault.Code {
	all := append([]fault.Code{fault.Invalid, fault.Unauthenticated, fault.Denied, fault.Internal, fault.Unavailable}, o.faults...)
	if strings.Contains(o.path, "{") {
		all = append(all, fault.NotFound)
	}
	if o.method != http.MethodGet {
		all = append(all, fault.Unknown, fault.TooLarge)
	}
	for _, p := range o.params {
		if p.in == "body" {
			all = append(all, fault.MediaType)
		}
	}
	slices.SortStableFunc(all, func(x, y fault.Code) int { return x.Status - y.Status })
	return slices.CompactFunc(all, func(x, y fault.Code) bool { return x.Status == y.Status })
}

func (o operation) response(b *schema.Builder, a answer) schema.Object {
	r := schema.Object{"description": a.what}
	if o.out == nil {
		r["content"] = content(eventStream, schema.Object{"type": "string"})
	} else {
		r["content"] = content("application/json", b.Of(o.out))
	}
	if a.header != "" {
		r["headers"] = header(a.header, "string")
	}
	return r
}

func problemResponse(b *schema.Builder, c fault.Code) schema.Object {
	r := schema.Object{"description": c.Title, "content": content(problem.MediaType, b.Of(reflect.TypeFor[problem.Document]()))}
	if c.Retry > 0 {
		r["headers"] = header("Retry-After", "integer")
	}
	return r
}

func content(media string, s schema.Object) schema.Object {
	return schema.Object{media: schema.Object{"schema": s}}
}

func header(name, kind string) schema.Object {
	return schema.Object{name: schema.Object{"schema": schema.Object{"type": kind}}}
}

func paramSchema(b *schema.Builder, p param) schema.Object {
	s := b.Of(p.Type)
	if s["type"] == "integer" {
		s["minimum"], s["maximum"] = p.bounds()
	}
	if enum := p.Tag.Get("enum"); enum != "" {
		values := s
		if items, ok := s["items"].(schema.Object); ok {
			values = items
		}
		values["enum"] = strings.Split(enum, ",")
	}
	if d := p.Tag.Get("default"); d != "" {
		s["default"] = json.RawMessage(d)
	}
	return s
}

// tag groups operations by their noun.
func tag(path string) string {
	noun, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return noun
}

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

func documentOperations() []operation {
	write := func(a *API, w http.ResponseWriter, _ *http.Request, _ struct{}) error {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(a.document) // fails only if the client is gone
		return nil
	}
	return []operation{
		rawOperation("getDocument", http.MethodGet, "/openapi.json", "This document", reflect.TypeFor[object](), write).
			returns(answer{status: http.StatusOK, what: "The document"}),
	}
}

func operations() []operation {
	return slices.Concat(jobOperations(), runOperations(), slotOperations(), fleetOperations(), eventOperations(), documentOperations())
}

// shapes describe the types that write their own JSON, or have another name in the document. A test
// compares them with answers.
var shapes = map[reflect.Type]reflect.Type{
	reflect.TypeFor[client.JobDetails](): reflect.TypeFor[jobShape](),
	reflect.TypeFor[client.NodeRow]():    reflect.TypeFor[nodeShape](),
	reflect.TypeFor[problem.Document]():  reflect.TypeFor[problemShape](),
	reflect.TypeFor[time.Duration]():     reflect.TypeFor[string](), // of a parameter
	reflect.TypeFor[job.Job]():           reflect.TypeFor[object](),
	reflect.TypeFor[job.Plan]():          reflect.TypeFor[object](),
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

type problemShape problem.Document
