package jobs

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/job"
)

func printApplied(r base.Session, report []client.Applied, dryRun bool) error {
	rows := make([]row.Apply, len(report))
	for i, d := range report {
		rows[i] = row.Applied(d, dryRun)
	}
	if r.Output == base.OutputJSON {
		return base.PrintLines(r.App, slices.Values(rows))
	}
	out := bufio.NewWriter(r.Stdout)
	for i, applied := range rows {
		printChange(out, applied, report[i])
	}
	fmt.Fprintln(out, applySummary(rows))
	if dryRun {
		fmt.Fprintf(out, "nothing was written; to apply exactly this, add --revision %d\n", lastRevision(report))
	}
	return out.Flush()
}

// printChange writes what changes for one job. It writes nothing if nothing changes.
func printChange(w io.Writer, a row.Apply, d client.Applied) {
	switch {
	case a.Error != "":
		fmt.Fprintf(w, "%s: %s\n", a.Change, printable.Clip(a.Error, 1000))
		return
	case d.Action == client.Keep, a.Change == row.NotTried:
		return
	case a.DryRun:
		fmt.Fprintf(w, "would be %s: %s", a.Change, a.Job)
	default:
		fmt.Fprintf(w, "%s: %s", a.Change, a.Job)
	}
	if a.Was != nil {
		fmt.Fprintf(w, ", last written by %s (%s)", printable.Clip(a.Was.Node, base.WidestCell), printable.Clip(a.Was.Owner, base.WidestCell))
	}
	if a.Broken != "" {
		fmt.Fprintf(w, ", in place of a broken definition: %s", printable.Clip(a.Broken, 1000))
	}
	fmt.Fprintln(w)
	if d.Action == client.Create {
		j := d.Stored.WithDefaults()
		fmt.Fprintf(w, "    %s, queue %s\n", started(j.Plan()), j.Queue)
	}
	for _, f := range a.Fields {
		before, after := differing(f.Old, f.New)
		fmt.Fprintf(w, "    %s: %s -> %s\n", printable.Clip(f.Name, base.WidestCell), before, after)
	}
	printSlots(w, a.Appear, a.Disappear)
	if a.Paused && len(a.Appear)+len(a.Disappear) > 0 {
		fmt.Fprintf(w, "    the job is paused: no slots until cronce job resume %s\n", a.Job)
	}
}

// started describes what starts a job.
func started(p job.Plan) string {
	if !p.Scheduled() {
		return p.Start()
	}
	return fmt.Sprintf("%q %s", p.Schedule, p.Timezone)
}

// printSlots lists the slots that appear and disappear, by time.
func printSlots(w io.Writer, appear, disappear []time.Time) {
	for len(appear)+len(disappear) > 0 {
		if len(disappear) == 0 || len(appear) > 0 && appear[0].Before(disappear[0]) {
			fmt.Fprintf(w, "    + %s\n", appear[0].Format(time.RFC3339))
			appear = appear[1:]
		} else {
			fmt.Fprintf(w, "    - %s\n", disappear[0].Format(time.RFC3339))
			disappear = disappear[1:]
		}
	}
}

// differing shortens two values for one line and keeps the part where they differ: long
// values may differ only at the end.
func differing(before, after json.RawMessage) (string, string) {
	const most, lead = 60, 10
	a, b := []rune(printable.Line(string(before))), []rune(printable.Line(string(after)))
	if len(a) <= most || len(b) <= most {
		return cmp.Or(base.Brief(string(a), most), "none"), cmp.Or(base.Brief(string(b), most), "none")
	}
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	cut := max(0, same-lead)
	mark := ""
	if cut > 0 {
		mark = "..."
	}
	return mark + base.Brief(string(a[cut:]), most), mark + base.Brief(string(b[cut:]), most)
}

// applySummary counts the rows: "1 created, 2 unchanged".
func applySummary(rows []row.Apply) string {
	count := map[string]int{}
	for _, a := range rows {
		count[a.Change]++
	}
	var words []string
	for _, change := range []string{"created", "updated", "removed", "unchanged", row.Failed, row.NotTried} {
		if n := count[change]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, strings.ReplaceAll(change, "_", " ")))
		}
	}
	return strings.Join(words, ", ")
}

// lastRevision is the newest revision that the report was computed from.
func lastRevision(report []client.Applied) (last uint64) {
	for _, d := range report {
		last = max(last, d.Revision)
	}
	return last
}
