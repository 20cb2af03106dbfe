package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/job"
)

// Level is how bad a finding is.
type Level string

const (
	Error   Level = "error"   // something does not work, or is lost, now
	Warning Level = "warning" // a risk: it does harm when something else fails, or if it is left
	Note    Level = "note"    // worth knowing; it does not count
)

// Finding is one thing that is wrong.
type Finding struct {
	// Check names the check in one word that scripts may rely on.
	Check string
	Level Level

	// About is the subject: "queue mail", "job report". What says what was seen, Why why it
	// matters, and Mend which command or action mends it. Mend is empty if there is nothing to
	// do.
	About, What, Why, Mend string
}

// Check returns the findings for the facts, the worst first.
func Check(f Facts) []Finding {
	c := &check{Facts: f}
	c.layout()
	c.outdated()
	c.foreign()
	c.full()
	c.storage()
	c.servers()
	c.limits()
	if !f.Survey.Complete() {
		c.add(Note, "incomplete", "", "the rest was not checked: the namespace is not complete", "", "")
	} else {
		c.settings()
		c.nodes()
		c.queues()
		c.jobs()
		c.watermark()
		c.slots()
		c.locks()
		c.unreadable()
		c.leases()
		c.sweep()
		c.unread()
		c.nodeConsumers()
	}
	slices.SortStableFunc(c.found, func(x, y Finding) int { return cmp.Compare(rank(x.Level), rank(y.Level)) })
	return c.found
}

// Counts reports whether any of the findings counts.
func Counts(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return f.Level != Note })
}

func rank(l Level) int { return slices.Index([]Level{Error, Warning, Note}, l) }

// check is one run of Check.
type check struct {
	Facts
	found []Finding
}

func (c *check) add(l Level, check, about, what, why, mend string) {
	c.found = append(c.found, Finding{Check: check, Level: l, About: about, What: what, Why: why, Mend: mend})
}

// cronce returns a command line for this namespace.
func (c *check) cronce(command string) string {
	if c.Namespace != "" && c.Namespace != job.DefaultNamespace {
		command += " --namespace " + c.Namespace
	}
	return "cronce " + command
}

// few lists the first names, and how many more there are.
func few(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
