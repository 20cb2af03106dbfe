package migrate

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/jobfile"
	"github.com/cronce-io/cronce/internal/jobfile/migrate/unitfile"
)

// formats are the importers, by name. Each reads one text.
var formats = map[string]func(text string) (Result, error){
	"sidekiq": func(text string) (Result, error) { return Sidekiq([]byte(text), "UTC") },
	"github":  func(text string) (Result, error) { return GitHub([]byte(text), "a.yml") },
	"k8s":     func(text string) (Result, error) { return Kubernetes([]byte(text), "UTC") },
	"crontab": func(text string) (Result, error) { return Crontab(text, "UTC", false), nil },
	"systemd": func(text string) (Result, error) {
		return Systemd([]unitfile.File{{Path: "x.timer", Text: text}}, "UTC"), nil
	},
}

// needCommand skips the test, by name, if a program is missing. With CRONCE_TEST_NO_SKIP=1 a
// missing program fails the test, unless CRONCE_TEST_WITHOUT names it.
func needCommand(t *testing.T, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	switch {
	case err == nil:
	case os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), name):
		t.Fatal(err)
	default:
		t.Skipf("needs %s: %v", name, err)
	}
}

// FuzzImport checks that the job file that is made of any imported file is valid, and reads as the same
// jobs.
func FuzzImport(f *testing.F) {
	files, err := os.ReadDir("../../../cmd/cronce/testdata/import")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile("../../../cmd/cronce/testdata/import/" + file.Name()); err == nil {
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, read := range formats {
			r, err := read(text)
			if err != nil || len(r.Jobs) == 0 {
				continue
			}
			file, err := jobfile.FormatImported(nil, r.Jobs)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			again, err := jobfile.Parse("jobs.yaml", file)
			if err != nil {
				t.Fatalf("%s: %v in\n%s", name, err, file)
			}
			for i, e := range again.Jobs {
				if want, _ := json.Marshal(r.Jobs[i].Job); e.Job.Name != r.Jobs[i].Job.Name || e.Job.Schedule != r.Jobs[i].Job.Schedule || !reflect.DeepEqual(e.Action.Exec.Args, r.Jobs[i].Exec.Args) {
					t.Fatalf("%s: %s is read as %+v", name, want, e)
				}
			}
		}
	})
}
