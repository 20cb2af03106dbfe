package migrate

import (
	"fmt"
	"strings"
	"testing"
)

// With a cost that grows with the square of the size, most of these would take a minute or more.
func TestLargeFileIsReadInAMomentEvenIfItIsHostile(t *testing.T) {
	t.Parallel()
	const many = 1 << 14
	repeat := func(format string) string {
		var b strings.Builder
		for n := range many / 4 {
			fmt.Fprintf(&b, format, n)
		}
		return b.String()
	}
	for name, source := range map[string]string{
		"many jobs":               "s = BlockingScheduler()\n" + repeat("s.add_job(f%d, 'interval', minutes=1, timezone='UTC')\n"),
		"jobs of one name":        "s = BlockingScheduler()\n" + repeat("s.add_job(f, 'interval', minutes=%d)\n"),
		"decorators of nothing":   repeat("@s.scheduled_job('interval', minutes=%d)\nx = 1\n"),
		"mentions in a statement": strings.Repeat("add_job ", many),
		"a dotted name":           strings.Repeat("a.", 4*many) + "add_job(x)",
		"adjacent strings":        "JOBS = " + strings.Repeat("'a' ", 8*many),
		"brackets":                "JOBS = " + strings.Repeat("[", 2*many) + strings.Repeat("]", 2*many),
		"open calls":              strings.Repeat("add_job(\n", many),
		"a lambda of colons":      "JOBS = " + strings.Repeat("x ", many) + "lambda" + strings.Repeat(":", many),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := APScheduler(source, "UTC")
			if strings.Contains(name, "jobs") && len(r.Jobs) != many/4-strings.Count(name, "one name") {
				t.Errorf("%d jobs", len(r.Jobs))
			}
		})
	}
}
