package alertbody_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/alerttest"
	"github.com/cronce-io/cronce/internal/text/alertbody"
)

func TestATemplateQuotesSafely(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"text": {{json .Title}}, "error": {{json .Error}}, "output": {{json .Output}}}`,
		`{"text": "{{.Title}}", "error": "{{js .Error}}", "output": "{{js .Output}}"}`,
		`{{json .}}`,
	} {
		if err := alertbody.CheckTemplate(text, alerttest.Kinds...); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		tmpl, err := alertbody.ParseTemplate(text)
		if err != nil {
			t.Fatal(err)
		}
		for name, foreign := range alerttest.Hostile {
			d := alerttest.Data(alertbody.Failed)
			d.Error, d.Output = foreign, foreign
			body, err := tmpl.Execute(d)
			if err != nil || !json.Valid(body) || len(body) > alertbody.MaxBody {
				t.Errorf("%s, %s: %v, %.300s", text, name, err, body)
			}
			if strings.Contains(string(body), d.Key) {
				t.Errorf("%s, %s: the key is in the body: %.300s", text, name, body)
			}
		}
	}
}

func TestAMistakeInATemplateHasItsPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]alertbody.TemplateError{
		"a\n{{.Nothing}}":                            {2, 3, "<.Nothing>: can't evaluate field Nothing: want one of .Alert"},
		"{{if}}x{{end}}":                             {1, 0, "missing value for if"},
		"a\nb\n{{nope .Error}}":                      {3, 0, `function "nope" not defined`},
		"{{range 5}}x{{end}}":                        {1, 9, "{{range}} is not supported"},
		"x\n{{if .Error}}{{range 5}}x{{end}}{{end}}": {2, 22, "{{range}} is not supported"},
		`{{template "x"}}`:                           {1, 12, "{{template}} is not supported"},
		`a{{define "x"}}b{{end}}`:                    {0, 0, "{{define}} and {{block}}"},
		"":                                           {0, 0, "it is empty"},
		" \n":                                        {0, 0, "it is empty"},
		strings.Repeat("x", 8<<10+1):                 {0, 0, "at most 8192"},
		`{"text": {{.Title}}}`:                       {0, 0, "begins like JSON, and is not"},
		`{"text": "{{.Error}}"}`:                     {0, 0, "write {{json .Error}}"},
		`{{if eq .Alert "never"}}x{{end}}`:           {0, 0, "writes nothing"},
		`{{printf "%10000d" 1}}`:                     {1, 3, "width of at most 999"},
		`{{printf "%*d" 100000000 1}}`:               {1, 3, "width of at most 999"},
	} {
		err := alertbody.CheckTemplate(text, alerttest.Kinds...)
		var got *alertbody.TemplateError
		if !errors.As(err, &got) || got.Line != want.Line || got.Column != want.Column || !strings.Contains(got.Message, want.Message) {
			t.Errorf("%.60q: %#v, want %#v", text, err, want)
		}
	}
}

// A login that may write to the registry can make every node run a template.
func TestATemplateCannotTakeLong(t *testing.T) {
	t.Parallel()
	double := `{{$x := .Output}}` + strings.Repeat(`{{$x = print $x $x}}`, 200) + `{{$x}}`
	long := strings.Repeat(`{{.Output}}`, 700)
	for _, text := range []string{double, long, strings.Repeat(`{{html .Output}}`, 500), strings.Repeat(`{{printf "%999d%999d" 1 2}}`, 200)} {
		tmpl, err := alertbody.ParseTemplate(text)
		if err != nil {
			t.Fatalf("%.60s: %v", text, err)
		}
		d := alerttest.Data(alertbody.Failed)
		d.Output = strings.Repeat("<", 4<<20)
		began := time.Now()
		if body, err := tmpl.Execute(d); err == nil && len(body) > alertbody.MaxBody {
			t.Errorf("%.60s: %d bytes", text, len(body))
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%.60s took %v", text, took)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add(`{"text": {{json .Title}}}`, "boom")
	f.Add(`{{if eq .Alert "failed"}}{{head 10 .Error}}{{else}}{{tail 3 .Output}}{{end}}`, "\xff\u202e")
	f.Fuzz(func(t *testing.T, text, foreign string) {
		tmpl, err := alertbody.ParseTemplate(text)
		if err != nil {
			return
		}
		d := alerttest.Data(alertbody.Failed)
		d.Error, d.Output = foreign, foreign
		if body, err := tmpl.Execute(d); err == nil && len(body) > alertbody.MaxBody {
			t.Errorf("%d bytes", len(body))
		}
	})
}
