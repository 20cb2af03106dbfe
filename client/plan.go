package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/job"
)

// applyPlan holds the edits that Apply is about to write.
type applyPlan struct {
	*Client
	now   time.Time
	nodes workers
	edits []edit

	applied int // jobs in the registry that a prune may remove if a file does not have them
}

type edit struct {
	Applied
	definition plans.Definition // to be stored
	revision   uint64           // of the entry that the edit replaces
}

func (c *Client) planApply(ctx context.Context, jobs []job.Job, o ApplyOptions) (*applyPlan, error) {
	if err := validate(jobs); err != nil {
		return nil, err
	}
	p := &applyPlan{Client: c}
	all, extra, err := p.withRegistry(ctx, jobs, o.Prune)
	if err != nil {
		return nil, err
	}
	if p.now, err = c.cfg.Now(ctx); err != nil {
		return nil, err
	}
	if p.nodes, err = c.workers(ctx, p.now); err != nil {
		return nil, err
	}
	wanted := append(codec.Map(jobs, func(j job.Job) string { return j.Name }), extra...)
	p.edits = make([]edit, len(wanted))
	err = each(ctx, len(wanted), func(ctx context.Context, i int) error {
		var as *job.Job
		if i < len(jobs) {
			as = &jobs[i]
		}
		return p.planEdit(ctx, &p.edits[i], wanted[i], as)
	})
	if err != nil {
		return nil, err
	}
	existing := names(all)
	for _, e := range p.edits {
		if e.Action == Delete {
			delete(existing, e.Job)
		}
	}
	for i, j := range jobs {
		for _, name := range j.After {
			if !existing[name] {
				p.edits[i].Missing = append(p.edits[i].Missing, name)
			}
		}
	}
	// The list of prunable jobs may have been stale. If a job on it must not be removed after all,
	// prune leaves its action empty.
	p.edits = slices.DeleteFunc(p.edits, func(e edit) bool { return e.Action == "" })
	return p, p.checkSeen(o.Seen)
}

// validate returns an error that names all that is wrong with the jobs.
func validate(jobs []job.Job) error {
	var errs []error
	seen := map[string]bool{}
	for _, j := range jobs {
		errs = append(errs, j.Validate())
		if seen[j.Name] {
			errs = append(errs, fmt.Errorf("%w jobs: two have the name %q", job.ErrInvalid, j.Name))
		}
		seen[j.Name] = true
	}
	return errors.Join(errs...)
}

// withRegistry returns the jobs together with those of the registry, and with prune the names of
// those that a prune may remove. The list may be stale, so planEdit reads each job again. The error
// says if some jobs would wait for each other in a cycle. withRegistry reads the registry only with
// prune, or if one of the jobs comes after another.
func (p *applyPlan) withRegistry(ctx context.Context, jobs []job.Job, prune bool) (all []job.Job, extra []string, err error) {
	follows := slices.ContainsFunc(jobs, func(j job.Job) bool { return len(j.After) > 0 })
	if !follows && !prune {
		return jobs, nil, nil
	}
	entries, err := p.cfg.Jobs.List(ctx)
	p.cfg.Alive()
	if err != nil && !exchange.IsUnreadable(err) {
		return nil, nil, err
	}
	all, given := slices.Clone(jobs), names(jobs)
	left := slices.Clone(jobs) // after the prune, which can remove a cycle
	for _, e := range entries {
		if isPrunable(e) {
			p.applied++
		}
		if given[e.Job.Name] {
			continue
		}
		all = append(all, e.Job)
		if prune && isPrunable(e) {
			extra = append(extra, e.Job.Name)
			continue
		}
		left = append(left, e.Job)
	}
	if !follows {
		return all, extra, nil
	}
	return all, extra, core.CheckCycle(left)
}

// isPrunable reports whether a prune may remove the job.
func isPrunable(e plans.Entry) bool { return e.Owner == plans.OwnerOperator && e.Applied }

// names returns the set of the jobs' names.
func names(jobs []job.Job) map[string]bool {
	set := make(map[string]bool, len(jobs))
	for _, j := range jobs {
		set[j.Name] = true
	}
	return set
}

// planEdit reads a job's entry at the registry's leader and sets the edit's action. wanted is nil
// for a job to be pruned.
func (p *applyPlan) planEdit(ctx context.Context, e *edit, name string, wanted *job.Job) error {
	entry, revision, err := p.cfg.Jobs.Read(ctx, name)
	p.cfg.Alive()
	old := &entry
	switch {
	case errors.Is(err, job.ErrNotFound):
		old = nil
	case errors.Is(err, job.ErrVersion):
		return fmt.Errorf("written by a newer version: %w", err)
	case errors.Is(err, job.ErrInvalid):
		old, e.Broken = nil, err
	case err != nil:
		return err
	}
	e.Job, e.Revision, e.revision = name, revision, revision
	if old != nil {
		e.Owner, e.Node, e.At, e.Paused = old.Owner, old.Node, old.Time, old.Paused
	}
	if wanted == nil {
		return p.prune(e, old)
	}
	return p.upsert(e, old, *wanted)
}

func (p *applyPlan) upsert(e *edit, old *plans.Entry, wanted job.Job) error {
	next, change, err := plans.Upsert(old, wanted, plans.OwnerOperator, p.cfg.Operator, true)
	if err != nil {
		return err
	}
	if e.Broken != nil {
		next.Applied = false // the author of the job is not known, so a prune must not remove it
	}
	e.definition, e.Stored, e.Handlers = next, next.Job, len(p.nodes.of(next.Job))
	after := next.Job.Plan()
	switch {
	case change == plans.Unchanged:
		e.Action = Keep
		return nil
	case old == nil:
		e.Action = Create
		if e.Broken != nil {
			e.Action = Update
		}
		e.Appear, _, err = compareNext(e.Job, nil, &after, p.now)
		return err
	}
	e.Action = Update
	if e.Fields, err = fields(old.Job, next.Job); err != nil {
		return err
	}
	before := old.Job.Plan()
	e.Appear, e.Disappear, err = compareNext(e.Job, &before, &after, p.now)
	return err
}

func (p *applyPlan) prune(e *edit, old *plans.Entry) error {
	if old == nil || !isPrunable(*old) {
		return nil
	}
	e.Action = Delete
	before := old.Job.Plan()
	var err error
	_, e.Disappear, err = compareNext(e.Job, &before, nil, p.now)
	return err
}

// checkSeen returns a ConflictError for each edit that would change a job written after revision
// seen.
func (p *applyPlan) checkSeen(seen *uint64) error {
	if seen == nil {
		return nil
	}
	var errs []error
	for _, e := range p.edits {
		if e.Action == Keep || e.revision <= *seen {
			continue
		}
		errs = append(errs, &ConflictError{
			Job: e.Job, Removed: e.At.IsZero() && e.Broken == nil, By: e.Node, Owner: e.Owner, At: e.At, Revision: e.revision,
		})
	}
	return errors.Join(errs...)
}

// Field is one setting of a job that an edit changes. Name is as in the job file, like
// "retry.attempts". A setting that is added has no Old, one that is removed has no New.
type Field struct {
	Name string          `json:"field"`
	Old  json.RawMessage `json:"old,omitempty"`
	New  json.RawMessage `json:"new,omitempty"`
}

// fields compares all settings of two jobs and returns those that differ, ordered by name. It
// compares the stored JSON, so a new setting needs no change here.
func fields(before, after job.Job) ([]Field, error) {
	was, err := settings(before)
	if err != nil {
		return nil, err
	}
	is, err := settings(after)
	if err != nil {
		return nil, err
	}
	var changed []Field
	names := maps.Clone(was)
	maps.Copy(names, is)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !bytes.Equal(was[name], is[name]) {
			changed = append(changed, Field{name, was[name], is[name]})
		}
	}
	return changed, nil
}

// Describe returns a job's settings as New, ordered by name.
func Describe(j job.Job) ([]Field, error) {
	is, err := settings(j)
	var all []Field
	for _, name := range slices.Sorted(maps.Keys(is)) {
		all = append(all, Field{Name: name, New: is[name]})
	}
	return all, err
}

// settings returns a job's settings by their names in the job file.
func settings(j job.Job) (map[string]json.RawMessage, error) {
	data, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	flat := map[string]json.RawMessage{}
	flatten(flat, "", data)
	return flat, nil
}

// flatten adds the members of an object, and their members as "outer.inner". It adds any
// other value under its own name.
func flatten(flat map[string]json.RawMessage, name string, value json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(value, &members) != nil || len(members) == 0 {
		flat[name] = value
		return
	}
	for inner, v := range members {
		if name != "" {
			inner = name + "." + inner
		}
		inner = inFile(inner)
		flatten(flat, inner, v)
	}
}

// inFile returns the name that a stored setting has in the job file.
func inFile(stored string) string {
	if name, ok := otherNames[stored]; ok {
		return name
	}
	if secret, ok := strings.CutSuffix(stored, "_env"); ok && strings.HasPrefix(stored, "on_") {
		return secret + ".env" // of an alert: its URL, or its key
	}
	return stored
}

var otherNames = map[string]string{
	"attempts": "retry.attempts", "backoff": "retry.backoff", "max_backoff": "retry.max_backoff",
	"catch_up": "catch_up.policy", "catch_up_within": "catch_up.within", "catch_up_max": "catch_up.max",
	"late_after": "on_late.after", "heartbeat.url": "heartbeat", "heartbeat.url_env": "heartbeat.env", "plan": "",
}

const (
	// comparedSlots is how many of the next slots of each plan are compared.
	comparedSlots = 5

	// newSlots is how many of the next slots of a new job are shown.
	newSlots = 3
)

// compareNext compares the next slots of two plans. appear are the slots that only the plan after
// has, and disappear the slots that only the plan before has. A nil plan has no slots.
func compareNext(name string, before, after *job.Plan, now time.Time) (appear, disappear []time.Time, err error) {
	var was, is *job.Schedule
	if before != nil {
		if was, err = job.ParseSchedule(name, *before); err != nil {
			return nil, nil, err
		}
	}
	if after != nil {
		if is, err = job.ParseSchedule(name, *after); err != nil {
			return nil, nil, err
		}
	}
	return without(is, was, now), without(was, is, now), nil
}

// without returns the next slots of s that other does not have.
func without(s, other *job.Schedule, now time.Time) []time.Time {
	if s == nil {
		return nil
	}
	most := comparedSlots
	if other == nil {
		most = newSlots
	}
	var own []time.Time
	for at := range nextSlots(s, now, time.Time{}, most) {
		if other == nil || !other.Includes(at) {
			own = append(own, at)
		}
	}
	return own
}
