//go:build js && wasm

// Playground computes in a browser what the page "Try a schedule" of the dashboard computes on
// the server: what an expression means, its next slots, and what it does when clocks change.
// The documentation site loads it. It sets the global function cronceSchedule, which takes an
// object with the text members spec, timezone, dst_gap, dst_overlap and name, and the number from,
// in milliseconds since 1970. The function returns JSON: a preview, or {"error": text}.
package main

import (
	"encoding/json"
	"fmt"
	"syscall/js"
	"time"

	"github.com/cronce-io/cronce/internal/web/pages/preview"
	"github.com/cronce-io/cronce/job"
)

func main() {
	js.Global().Set("cronceSchedule", js.FuncOf(func(_ js.Value, args []js.Value) any { return schedule(args[0]) }))
	select {} // JavaScript cannot call a function of a program that has ended
}

func schedule(question js.Value) string {
	text := func(member string) string { return question.Get(member).String() }
	plan := job.Plan{
		Schedule: text("spec"), Timezone: text("timezone"),
		DSTGap: job.GapPolicy(text("dst_gap")), DSTOverlap: job.RepeatPolicy(text("dst_overlap")),
	}
	p, err := preview.New(text("name"), plan, time.UnixMilli(int64(question.Get("from").Float())))
	answer := answer{}
	if err != nil {
		answer.Error = err.Error()
	} else {
		answer.show(p)
	}
	out, err := json.Marshal(answer)
	if err != nil {
		return `{"error":"the preview cannot be written as JSON"}`
	}
	return string(out)
}

// answer is what the page shows. Times are formatted.
type answer struct {
	Error   string   `json:"error,omitempty"`
	Words   string   `json:"words"`
	Zone    string   `json:"zone"`
	Slots   []slot   `json:"slots"`
	Changes []change `json:"changes"`
}

type slot struct {
	UTC   string `json:"utc"`
	Local string `json:"local"`
}

type change struct {
	At      string   `json:"at"`
	Says    string   `json:"says"`
	Planned []string `json:"planned"` // wall times that are skipped, or occur twice
	Setting string   `json:"setting"`
	Same    bool     `json:"same"` // all choices have the same slots
	Choices []choice `json:"choices"`
}

type choice struct {
	Value  string `json:"value"`
	Chosen bool   `json:"chosen"`
	Slots  []slot `json:"slots"`
	More   int    `json:"more,omitempty"`
}

func (a *answer) show(p *preview.Preview) {
	a.Words, a.Zone, a.Slots = p.Words, p.Zone.String(), slots(p.Coming, p.Zone)
	for _, c := range p.Changes {
		says := fmt.Sprintf("clocks go back from %s (%s) to %s (%s)", c.To, c.Before, c.From, c.After)
		if c.Forward {
			says = fmt.Sprintf("clocks go forward from %s (%s) to %s (%s)", c.From, c.Before, c.To, c.After)
		}
		shown := change{
			At: c.At.In(p.Zone).Format("Mon 2 Jan 2006"), Says: says,
			Planned: c.Planned, Setting: c.Setting, Same: c.Same,
		}
		for _, o := range c.Choices {
			shown.Choices = append(shown.Choices, choice{o.Value, o.Chosen, slots(o.Slots, p.Zone), o.More})
		}
		a.Changes = append(a.Changes, shown)
	}
}

func slots(times []time.Time, zone *time.Location) []slot {
	list := []slot{}
	for _, t := range times {
		list = append(list, slot{t.UTC().Format(time.RFC3339), t.In(zone).Format("Mon 2 Jan 2006 15:04:05 MST")})
	}
	return list
}
