package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile/reference"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

func TestSchemaForEditorsIsWhatTheProgramPrints(t *testing.T) {
	t.Parallel()
	holdFile(t, "jobs.schema.json", string(reference.Schema()))
}

func TestConfigurationPageIsMadeFromTheCode(t *testing.T) {
	t.Parallel()
	text := between(t, string(filetest.Read(t, "configuration.md")), "<!-- From internal/jobfile/reference: go test ./docs -rewrite -->\n", string(fieldTables()))
	text = between(t, text, "<!-- From job.Settings: go test ./docs -rewrite -->\n", settingsTable())
	holdFile(t, "configuration.md", text)
}

// holdFile holds a file against what the code makes of it.
func holdFile(t *testing.T, path, want string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Errorf("docs/%s is not what the code makes (%v): go test ./docs -rewrite", path, err)
	}
}

// between puts text between a mark and the next end mark.
func between(t *testing.T, page, mark, text string) string {
	t.Helper()
	before, rest, found := strings.Cut(page, mark)
	_, after, ends := strings.Cut(rest, "<!-- end -->")
	if !found || !ends {
		t.Fatalf("no %s with an end", mark)
	}
	return before + mark + "\n" + strings.TrimSpace(text) + "\n\n<!-- end -->" + after
}

func settingsTable() string {
	s := job.Settings{}.WithDefaults()
	hours := func(d time.Duration) string { return fmt.Sprintf("%.0f h", d.Hours()) }
	rows := [][4]string{
		{"lease", fmt.Sprintf("%.0f s", s.Lease.Seconds()), "1 s", "How long a silent node keeps what it claimed. Below 16 s it does not outlast a failover of a NATS cluster."},
		{"horizon", hours(s.Horizon), "1 min", "How old a slot may be and still run; its attempts end there too."},
		{"retention", hours(s.Retention), "the horizon and an hour", "How long an outcome is remembered."},
		{"duplicates", fmt.Sprintf("%.0f min", s.Duplicates.Minutes()), "2 min", "The duplicate window of the slot stream: so long the server itself folds copies. Later ones meet the ledger."},
		{"replicas", "3 on a cluster of three servers or more, else 1", "1, at most 5", "Copies of every stream and bucket."},
	}
	var b strings.Builder
	b.WriteString("| setting | at first | at least | meaning |\n|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s |\n", r[0], r[1], r[2], r[3])
	}
	return b.String()
}

// The least values of that table are the last that the code takes.
func TestSettingsTableKnowsTheLimits(t *testing.T) {
	t.Parallel()
	least := job.Settings{Lease: time.Second, Horizon: time.Minute, Duplicates: 2 * time.Minute, Retention: time.Minute + time.Hour, Replicas: 5}
	if err := least.Validate(); err != nil {
		t.Error(err)
	}
	for name, worse := range map[string]func(*job.Settings){
		"lease":      func(s *job.Settings) { s.Lease-- },
		"horizon":    func(s *job.Settings) { s.Horizon-- },
		"duplicates": func(s *job.Settings) { s.Duplicates-- },
		"retention":  func(s *job.Settings) { s.Retention-- },
		"replicas":   func(s *job.Settings) { s.Replicas++ },
	} {
		s := least
		worse(&s)
		if s.Validate() == nil {
			t.Errorf("%s: less is taken", name)
		}
	}
}
