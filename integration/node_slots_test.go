//go:build long && unix

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/job"
)

// planCase is a plan and its slots after an instant, as Go or JavaScript computes them.
type planCase struct {
	Job struct {
		Name string         `json:"name"`
		Plan map[string]any `json:"plan"`
	} `json:"job"`
	After int64   `json:"after"`
	Slots []int64 `json:"slots"`
	Error string  `json:"error"`
}

const computeSlots = `
import { parseSchedule } from "./lib/schedule.js";
let text = "";
for await (const chunk of process.stdin) text += chunk;
console.log(JSON.stringify(JSON.parse(text).map((c) => {
  const slots = [];
  try {
    const s = parseSchedule(c.job.name, c.job.plan);
    for (let at = s.next(c.after); at !== undefined && slots.length < 20; at = s.next(at)) slots.push(at);
  } catch (err) {
    return { ...c, error: err.message };
  }
  return { ...c, slots, error: "" };
})));
`

// Random plans have the same slots in Go and JavaScript, or both refuse them. The plans combine changes of
// clocks, two day fields, H and exclusions; the vectors have only a few such combinations.
func TestJavaScriptComputesTheSlotsThatGoDoes(t *testing.T) {
	t.Parallel()
	node := needNode(t)
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	var cases []planCase
	for range 300 {
		cases = append(cases, randomPlan(random))
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(node, "--input-type=module", "-e", computeSlots)
	cmd.Dir, cmd.Stdin = nodeClient, bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var answers []planCase
	if err := json.Unmarshal(out, &answers); err != nil || len(answers) != len(cases) {
		t.Fatalf("%d answers, %v", len(answers), err)
	}
	right := 0
	for i, c := range cases {
		plan, _ := json.Marshal(c.Job)
		slots, err := goSlots(plan, c.After)
		got := answers[i]
		switch {
		case (err != nil) != (got.Error != ""):
			t.Errorf("seed %d: %s: Go says %v, JavaScript %q", seed, plan, err, got.Error)
		case fmt.Sprint(slots) != fmt.Sprint(got.Slots):
			t.Errorf("seed %d: %s after %d has\n%v in Go and\n%v in JavaScript", seed, plan, c.After, slots, got.Slots)
		case len(slots) > 0:
			right++
		}
	}
	if right < 100 {
		t.Errorf("seed %d: only %d plans had slots", seed, right)
	}
}

func goSlots(definition []byte, after int64) (slots []int64, err error) {
	var j job.Job
	if err := json.Unmarshal(definition, &j); err != nil {
		return nil, err
	}
	s, err := job.ParseSchedule(j.Name, j.Plan())
	if err != nil {
		return nil, err
	}
	for at := s.Next(time.Unix(after, 0)); !at.IsZero() && len(slots) < 20; at = s.Next(at) {
		slots = append(slots, at.Unix())
	}
	return slots, nil
}

func randomPlan(r *rand.Rand) (c planCase) {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	field := func(low, high int) string {
		n := func() int { return low + r.IntN(high-low+1) }
		a, b := n(), n()
		var items []string
		for range 1 + r.IntN(2) {
			items = append(items, []string{
				"*", "*", "?", "H", fmt.Sprint(n()), fmt.Sprint(n()), fmt.Sprintf("%d-%d", min(a, b), max(a, b)), fmt.Sprintf("*/%d", 1+r.IntN(6)),
				fmt.Sprintf("%d/%d", n(), 1+r.IntN(5)), fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+r.IntN(3)), fmt.Sprintf("H(%d-%d)", min(a, b), max(a, b)),
				fmt.Sprintf("H/%d", 1+r.IntN(5)),
			}[r.IntN(12)])
		}
		return strings.Join(items, ",")
	}
	expression := func() string {
		fields := []string{field(0, 59), field(0, 5), field(1, 31), pick("*", "*", field(1, 12), "MAR,oct"), pick("*", field(0, 7), "MON-SUN", "sat-7", "Mon-Fri")}
		if r.IntN(4) == 0 {
			fields = append([]string{field(0, 59)}, fields...)
		}
		return strings.Join(fields, " ")
	}
	c.Job.Name = fmt.Sprintf("job-%d", r.IntN(1000))
	c.Job.Plan = map[string]any{
		"schedule": pick(expression(), expression(), expression(), expression(), "@daily", "@hourly", "@weekly", fmt.Sprintf("@every %ds", 1+r.IntN(100_000))),
		"timezone": pick("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "America/Havana", "Asia/Kolkata"),
		"dst_gap":  pick("after", "skip"), "dst_overlap": pick("first", "second", "both"),
	}
	if r.IntN(4) == 0 {
		c.Job.Plan["exclude"] = []string{pick("2026-03-29", "* * * * SUN", "0-29 2 * * *", strings.ReplaceAll(expression(), "H", "7"))}
	}
	if r.IntN(6) == 0 {
		c.Job.Plan["from"] = "2026-03-29T01:00:00Z"
		c.Job.Plan["until"] = "2026-11-01T06:30:00Z"
	}
	starts := []time.Time{
		time.Date(2026, 3, 7, 20, 0, 0, 0, time.UTC), time.Date(2026, 3, 28, 20, 0, 0, 0, time.UTC), time.Date(2026, 4, 4, 10, 0, 0, 0, time.UTC),
		time.Date(2026, 10, 3, 10, 0, 0, 0, time.UTC), time.Date(2026, 10, 24, 20, 0, 0, 0, time.UTC), time.Date(2026, 10, 31, 20, 0, 0, 0, time.UTC),
	}
	c.After = starts[r.IntN(len(starts))].Unix() + r.Int64N(36_000)
	return c
}
