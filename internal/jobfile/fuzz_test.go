package jobfile

import (
	"encoding/json"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

// FuzzParse holds every file to the promises of Parse: valid jobs with one
// action each, or errors with a place in the file, in order, one line each.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/*.yaml", "testdata/bad/*.yaml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			f.Fatalf("%s: no seeds (%v)", pattern, err)
		}
		for _, path := range paths {
			data := filetest.Read(f, path)
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("f", data)
		if (file == nil) == (err == nil) {
			t.Fatalf("got file %v and error %v", file, err)
		}
		if err != nil {
			checkErrors(t, err, strings.Count(string(data), "\n")+1)
			return
		}
		checkFile(t, file)
	})
}

func checkErrors(t *testing.T, err error, lines int) {
	var errs spec.Errors
	if !errors.As(err, &errs) || len(errs) == 0 || !errors.Is(err, job.ErrInvalid) {
		t.Fatalf("not the promised errors: %#v", err)
	}
	line := 0
	for _, e := range errs {
		if e.Message == "" || strings.ContainsAny(e.Message, "\n\r\x1b") {
			t.Errorf("message is not one clear line: %q", e.Message)
		}
		if e.Line == 0 {
			continue
		}
		if e.Line < line || e.Line > lines || e.Column < 1 {
			t.Errorf("%d:%d after line %d of %d: %s", e.Line, e.Column, line, lines, e.Message)
		}
		line = e.Line
	}
}

func checkFile(t *testing.T, file *spec.File) {
	if len(file.Jobs) == 0 {
		t.Error("no jobs and no error")
	}
	names := map[string]bool{}
	for _, e := range file.Jobs {
		if err := e.Job.Validate(); err != nil {
			t.Errorf("accepted an invalid job: %v", err)
		}
		if names[e.Job.Name] {
			t.Errorf("accepted two jobs %q", e.Job.Name)
		}
		names[e.Job.Name] = true
		checkAction(t, e)
		if e.Job.Payload != nil && !json.Valid(e.Job.Payload) {
			t.Errorf("job %q: payload %q is not JSON", e.Job.Name, e.Job.Payload)
		}
	}
}

func checkAction(t *testing.T, e spec.Entry) {
	ways := 0
	if a := e.Action.Exec; a != nil {
		ways++
		if len(a.Args) == 0 || a.Args[0] == "" {
			t.Errorf("job %q has no program", e.Job.Name)
		}
		for _, v := range a.Env {
			if !spec.IsVariableName(v.Name) || strings.ContainsRune(v.Value, 0) || (v.Env != "" && v.File != "") {
				t.Errorf("job %q: variable %+v", e.Job.Name, v)
			}
		}
	}
	if a := e.Action.NATS; a != nil {
		ways++
		if a.Subject == "" || a.Timeout < 0 {
			t.Errorf("job %q: %+v", e.Job.Name, a)
		}
	}
	if a := e.Action.HTTP; a != nil {
		ways++
		req, err := http.NewRequest(a.Method, a.URL.String(), nil)
		if err != nil || req.URL.Host == "" || a.Timeout < 0 {
			t.Fatalf("job %q: %+v, %v", e.Job.Name, a, err)
		}
		for _, h := range a.Headers {
			if codec.RefusedHeader(h.Name) != "" || strings.ContainsAny(h.Value+h.Prefix, "\r\n\x00") || !oneSet(h.Value, h.Env, h.File) {
				t.Errorf("job %q: header %+v", e.Job.Name, h)
			}
		}
	}
	if ways != 1 {
		t.Errorf("job %q has %d actions", e.Job.Name, ways)
	}
}

func oneSet(texts ...string) bool {
	n := 0
	for _, s := range texts {
		if s != "" {
			n++
		}
	}
	return n == 1
}
