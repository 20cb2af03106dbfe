package jobfile

import (
	"errors"
	"flag"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

var update = flag.Bool("update", false, "write the expected files in testdata anew")

func TestEveryFieldReachesTheJob(t *testing.T) {
	t.Parallel()
	f, err := Load("testdata/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	report := job.Job{
		Name: "report", Schedule: "0 7 * * MON-FRI", Timezone: "Europe/Berlin", Queue: "slow",
		Payload:  []byte(`{"<a>":[1.10,123456789012345678901234567890,-0,true,null,"1","ü"],"empty":{},"format":"pdf","no":""}`),
		Timeout:  30 * time.Second,
		Deadline: 10 * time.Minute,
		Retry:    job.Retry{Attempts: 5, Backoff: 2 * time.Second, MaxBackoff: 90 * time.Second},
		Overlap:  job.OverlapQueue, Concurrency: 2, OnLeaseLost: job.LeaseLostFinish, Shards: 8,
		CatchUp:    job.CatchUp{Policy: job.CatchUpAll, Within: 24 * time.Hour, Max: 7},
		Output:     64 << 10,
		Spread:     5 * time.Minute,
		From:       time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		Until:      time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC),
		Exclude:    []string{"2026-12-25", "* * * * SUN"},
		DSTGap:     job.GapSkip,
		DSTOverlap: job.RepeatBoth,
	}
	again := report
	again.Name, again.Queue, again.Payload, again.Exclude = "again", "default", []byte(`"two\nlines\n"`), []string{"2026-12-26"}
	argv := []string{"/bin/sh", "-c", "make report", ""}
	want := &spec.File{Path: "testdata/everything.yaml", Jobs: []spec.Entry{
		{Job: report, Action: spec.Action{Exec: &spec.Exec{Args: argv}}, Shadow: true, Line: 5},
		{Job: job.Job{Name: "least", Schedule: "@hourly"}, Action: spec.Action{Exec: &spec.Exec{Args: []string{"/bin/true"}}}, Line: 29},
		{Job: again, Action: spec.Action{Exec: &spec.Exec{Args: argv}}, Shadow: true, Line: 34},
		{Job: job.Job{Name: "call", Schedule: "@hourly"}, Action: spec.Action{HTTP: &spec.HTTP{
			URL:    &url.URL{Scheme: "https", User: url.UserPassword("user", "word"), Host: "example.com:8443", Path: "/jobs/call", RawQuery: "a=b"},
			Method: "PUT",
			Headers: []spec.Header{
				{Name: "Content-Type", Value: "text/plain"},
				{Name: "Authorization", Prefix: "Bearer ", Env: "API_TOKEN"},
				{Name: "X-Key", File: "/run/secrets/key"},
			},
			Timeout: 20 * time.Second,
			Ready:   &url.URL{Scheme: "http", Host: "127.0.0.1:8080", Path: "/ready"},
		}}, Line: 42},
		{Job: job.Job{Name: "ask", Schedule: "@hourly"}, Action: spec.Action{NATS: &spec.NATS{Subject: "svc.ask", Timeout: 20 * time.Second}}, Line: 55},
		{Job: job.Job{Name: "as", Schedule: job.OnDemand}, Action: spec.Action{Exec: &spec.Exec{
			Args: []string{"./run"},
			Env: []spec.Variable{
				{Name: "LANG", Value: "C.UTF-8"}, {Name: "EMPTY"}, {Name: "LINES", Value: "one\ntwo\n"},
				{Name: "TOKEN", Env: "REPORT_TOKEN"}, {Name: "spring.key", File: "/run/secrets/key"},
			},
			CleanEnv: true, PassEnv: []string{"HOME"}, Dir: "~/reports", User: "www-data", Group: "65534",
		}}, Line: 60},
	}}
	if len(f.Jobs) != len(want.Jobs) || f.Path != want.Path {
		t.Fatalf("got %d jobs of %s, want %d of %s", len(f.Jobs), f.Path, len(want.Jobs), want.Path)
	}
	for i, e := range f.Jobs {
		if !reflect.DeepEqual(e, want.Jobs[i]) {
			t.Errorf("got  %+v\nwant %+v\npayload %s", e, want.Jobs[i], e.Job.Payload)
		}
	}
}

func TestQuickstartIsRight(t *testing.T) {
	t.Parallel()
	f, err := Load("../../examples/quickstart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Jobs) < 3 {
		t.Errorf("got %d jobs, want something to look at", len(f.Jobs))
	}
}

// Each file in testdata/bad has one mistake or more. The .txt file beside it has the errors.
func TestBadFilesSayWhatIsWrongAndWhere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no bad files: %v", err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			f, err := Parse("jobs.yaml", filetest.Read(t, path))
			if err == nil {
				t.Fatalf("accepted: %+v", f)
			}
			if f != nil || !errors.Is(err, job.ErrInvalid) {
				t.Errorf("got file %v and error %v, want none and one that wraps job.ErrInvalid", f, err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := filetest.Read(t, path)
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestHugeFilesAreRefusedUnread(t *testing.T) {
	t.Parallel()
	_, err := Read("jobs.yaml", endless{})
	if err == nil || err.Error() != "jobs.yaml: the file is larger than 4 MiB: split it" {
		t.Errorf("got %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestFilesThatCannotBeReadKeepTheCause(t *testing.T) {
	t.Parallel()
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a directory was accepted")
	}
}

func TestReportsEndAtAHundredErrors(t *testing.T) {
	t.Parallel()
	_, err := Parse("jobs.yaml", []byte("version: 1\njobs:\n"+strings.Repeat("- x\n", 1000)))
	var errs spec.Errors
	if !errors.As(err, &errs) || len(errs) != spec.MaxErrors+1 {
		t.Fatalf("got %d errors, want %d", len(errs), spec.MaxErrors+1)
	}
	if last := errs[spec.MaxErrors].Error(); last != "jobs.yaml: more than 100 errors, the rest is not shown" {
		t.Errorf("last error: %s", last)
	}
}

func TestEqualPayloadsAreEqualBytes(t *testing.T) {
	t.Parallel()
	payload := func(yaml string) string {
		f, err := Parse("jobs.yaml", []byte("version: 1\njobs:\n- {name: a, schedule: \"@hourly\", action: {exec: [a]}, payload: "+yaml+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		return string(f.Jobs[0].Job.Payload)
	}
	if a, b := payload(`{a: 1, b: {d: "x", c: y}}`), payload(`{"b": {c: 'y', d: x}, a: 1}`); a != b {
		t.Errorf("%s and %s differ", a, b)
	}
	if got := payload("[yes, 2026-01-01, ~, 1e3, 'null', [], {}]"); got != `["yes","2026-01-01",null,1e3,"null",[],{}]` {
		t.Errorf("got %s", got)
	}
}

func TestWindowsEditorsAreUnderstood(t *testing.T) {
	t.Parallel()
	const unix = "version: 1\njobs:\n- {name: a, schedule: \"@hourly\", action: {exec: [a]}, payload: \"b\n  c\"}\n"
	f, err := Parse("jobs.yaml", []byte("\ufeff"+strings.ReplaceAll(unix, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.Jobs[0].Job.Payload); got != `"b c"` {
		t.Errorf("payload %s", got)
	}
}
