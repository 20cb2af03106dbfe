package spec

import (
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/job"
)

// File is the content of a job file.
type File struct {
	// Path is the name given to Parse.
	Path string

	// Jobs has at least one element, in the order of the file.
	Jobs []Entry
}

// Entry is one job of a file.
type Entry struct {
	// Job is valid. Fields that the file does not set are zero.
	Job job.Job

	// Action is what this process does for a slot of the job. It never leaves
	// the process: the registry holds no commands.
	Action Action

	// Shadow is true if this process claims and records the slots of the job but does not run
	// the action. Like the action it never leaves the process.
	Shadow bool

	// Line is the line in the file on which the job begins, from 1.
	Line int
}

// Option changes what a file must have.
type Option func(*decoder)

// WithoutActions accepts jobs without an action, for commands that define jobs and do not
// run them. An action in the file must still be valid.
func WithoutActions() Option { return func(d *decoder) { d.actionless = true } }

// DecodeFile decodes the jobs of a file with the text s. root is its tree. If root is nil or Broken,
// an error was reported already.
func DecodeFile(s *Source, root *Node, options ...Option) (*File, error) {
	if root == nil || root.Kind == Broken {
		return nil, s.Err()
	}
	d := &decoder{Source: s}
	for _, option := range options {
		option(d)
	}
	f := &File{Path: s.name, Jobs: d.file(root)}
	if err := s.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

func (d *decoder) file(root *Node) []Entry {
	if root.Kind != Mapping {
		d.fail(root.At, "want \"version: 1\" and \"jobs:\" at the top, got %s", root.describe())
		return nil
	}
	// If the file has another version, errors about its fields would mislead.
	if !d.version(root) {
		return nil
	}
	var entries []Entry
	known := d.object(value{root, ""}, []field{
		{"version", func(value) {}},
		{"jobs", func(v value) { entries = d.jobs(v) }},
	})
	if known && root.member("jobs") == nil {
		d.fail(root.At, "no jobs: want a list \"jobs:\"")
	}
	return entries
}

func (d *decoder) version(root *Node) bool {
	m := root.member("version")
	if m == nil {
		d.fail(root.At, "no version: want \"version: 1\" at the top")
		return true
	}
	v := value{m.Value, "version"}
	if !d.want(v, Number, "the number 1") {
		return false
	}
	if v.Scalar != "1" {
		d.fail(v.At, "version %s: this program reads version 1", Clip(v.Scalar))
	}
	return v.Scalar == "1"
}

func (d *decoder) jobs(v value) []Entry {
	const example = "a list of jobs, each beginning with \"- name:\""
	if v.Kind == Null || v.Kind == List && len(v.Items) == 0 {
		d.fail(v.At, "no jobs: want %s", example)
		return nil
	}
	var entries []Entry
	lines, positions := map[string]int{}, map[string]Position{}
	d.list(v, example, func(v value) {
		e, at := d.entry(v, len(entries)+1)
		if line, twice := lines[e.Job.Name]; twice && e.Job.Name != "" {
			d.fail(at, "job %q: line %d already has a job of this name", e.Job.Name, line)
		} else {
			lines[e.Job.Name], positions[e.Job.Name] = e.Line, at
		}
		entries = append(entries, e)
	})
	if cycle := core.Cycle(codec.Map(entries, func(e Entry) job.Job { return e.Job })); cycle != nil {
		d.fail(positions[cycle[0]], "after: these jobs wait for each other in a cycle, so none can start: %s", strings.Join(cycle, " after "))
	}
	return entries
}
