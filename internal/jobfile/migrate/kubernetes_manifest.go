package migrate

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// manifest is a CronJob. The fields that decide when and how often it runs are read strictly: an
// unknown one is an error. The pod is a map.
type manifest struct {
	Metadata map[string]any
	Spec     cronJobSpec
}

type cronJobSpec struct {
	Schedule         string
	TimeZone         string
	Concurrency      string
	StartingDeadline *int64
	Suspend          bool
	Job              jobSpec
}

type jobSpec struct {
	BackoffLimit   *int64
	ActiveDeadline *int64
	Completions    *int64
	Parallelism    *int64
	Suspend        bool
	HasPolicies    bool // of failures or successes
	Pod            map[string]any
}

// manifestReader reads a manifest. It is as lenient as the tools that write manifests: true may be
// "true" or yes, and a number may be in quotes.
type manifestReader struct {
	problem string // the first one
	line    int
}

// readManifest returns the CronJob, or what is wrong with it and on which line.
func readManifest(n ast.Node) (m manifest, problem string, line int) {
	var r manifestReader
	ignored := func(ast.Node, string) {}
	policy := func(n ast.Node, _ string) {
		m.Spec.Job.HasPolicies = m.Spec.Job.HasPolicies || n.Type() != ast.NullType
	}
	type fields = map[string]func(ast.Node, string)
	r.object(n, "", fields{
		"apiVersion": ignored, "kind": ignored, "status": ignored, "metadata": r.mapping(&m.Metadata),
		"spec": r.fields(fields{
			"schedule": r.text(&m.Spec.Schedule), "timeZone": r.text(&m.Spec.TimeZone), "concurrencyPolicy": r.text(&m.Spec.Concurrency),
			"startingDeadlineSeconds": r.number(&m.Spec.StartingDeadline), "suspend": r.boolean(&m.Spec.Suspend),
			"successfulJobsHistoryLimit": ignored, "failedJobsHistoryLimit": ignored,
			"jobTemplate": r.fields(fields{
				"metadata": ignored,
				"spec": r.fields(fields{
					"backoffLimit": r.number(&m.Spec.Job.BackoffLimit), "activeDeadlineSeconds": r.number(&m.Spec.Job.ActiveDeadline),
					"completions": r.number(&m.Spec.Job.Completions), "parallelism": r.number(&m.Spec.Job.Parallelism),
					"completionMode": ignored, "ttlSecondsAfterFinished": ignored, "suspend": r.boolean(&m.Spec.Job.Suspend),
					"selector": ignored, "manualSelector": ignored, "podFailurePolicy": policy, "successPolicy": policy,
					"podReplacementPolicy": ignored, "managedBy": ignored, "backoffLimitPerIndex": policy, "maxFailedIndexes": ignored,
					"template": r.fields(fields{"metadata": ignored, "spec": r.mapping(&m.Spec.Job.Pod)}),
				}),
			}),
		}),
	})
	return m, r.problem, r.line
}

func (r *manifestReader) fail(n ast.Node, format string, args ...any) {
	if r.problem == "" {
		r.problem, r.line = fmt.Sprintf(format, args...), lineOf(n)
	}
}

// object reads each member of a mapping by its field. path names the mapping in errors.
func (r *manifestReader) object(n ast.Node, path string, fields map[string]func(ast.Node, string)) {
	if n.Type() == ast.NullType {
		return
	}
	if !isMapping(n) {
		r.fail(n, "%s %s: want a mapping of fields", path, shown(n))
		return
	}
	for _, m := range pairs(n) {
		name := strings.TrimPrefix(path+"."+keyOf(m), ".")
		if read, known := fields[keyOf(m)]; known {
			read(m.Value, name)
		} else {
			r.fail(m.Key, "unknown field %s", clip(name))
		}
	}
}

func (r *manifestReader) fields(fields map[string]func(ast.Node, string)) func(ast.Node, string) {
	return func(n ast.Node, path string) { r.object(n, path, fields) }
}

func (r *manifestReader) text(to *string) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		if text, ok := textOf(n); ok {
			*to = text
		} else if n.Type() != ast.NullType {
			r.fail(n, "%s %s: want text: put it in quotes", path, shown(n))
		}
	}
}

func (r *manifestReader) number(to **int64) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		if n.Type() == ast.NullType {
			return
		}
		text, ok := textOf(n)
		if !ok && n.Type() == ast.IntegerType {
			text = n.GetToken().Value
		}
		value, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil {
			r.fail(n, "%s %s: want a whole number", path, shown(n))
			return
		}
		*to = &value
	}
}

func (r *manifestReader) boolean(to *bool) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		text, _ := textOf(n)
		if of, ok := n.(*ast.BoolNode); ok {
			text = strconv.FormatBool(of.Value)
		}
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "true", "yes", "on", "y":
			*to = true
		case "false", "no", "off", "n":
		default:
			if n.Type() != ast.NullType {
				r.fail(n, "%s %s: want true or false", path, shown(n))
			}
		}
	}
}

func (r *manifestReader) mapping(to *map[string]any) func(ast.Node, string) {
	return func(n ast.Node, path string) {
		if n.Type() == ast.NullType {
			return
		}
		if !isMapping(n) || yaml.NodeToValue(n, to) != nil {
			r.fail(n, "%s %s: want a mapping of fields", path, shown(n))
		}
	}
}

func isMapping(n ast.Node) bool {
	return n.Type() == ast.MappingType || n.Type() == ast.MappingValueType
}

// textOf returns the value of a text, or false for another type.
func textOf(n ast.Node) (string, bool) {
	switch of := n.(type) {
	case *ast.StringNode:
		return of.Value, true
	case *ast.LiteralNode:
		return of.Value.Value, true
	}
	return "", false
}

// shown returns a value as an error quotes it.
func shown(n ast.Node) string {
	switch {
	case isMapping(n):
		return "is a mapping"
	case n.Type() == ast.SequenceType:
		return "is a list"
	}
	text, isText := textOf(n)
	if !isText && n.GetToken() != nil {
		text = n.GetToken().Value
	}
	return strconv.Quote(clip(text))
}
