package spec

import (
	"net/textproto"

	"github.com/cronce-io/cronce/job"
)

// alert is on_failure or on_missed: a webhook or a NATS subject. It goes into the
// registry, so a secret can only be named here.
func (j *jobDecoder) alert(set func(*job.Job, *job.Alert)) func(value) {
	return func(v value) {
		var a job.Alert
		before := len(j.errs)
		known := j.object(v, []field{
			{"http", func(v value) { a.HTTP = j.alertHTTP(v) }},
			{"nats", func(v value) {
				a.NATS = &job.AlertNATS{}
				if j.object(v, []field{{"subject", func(v value) { a.NATS.Subject, _ = j.text(v, "alerts.jobs") }}}) {
					j.needs(v, "subject")
				}
			}},
		})
		if known && (v.member("http") == nil) == (v.member("nats") == nil) {
			j.fail(v.At, "%s: want either http or nats", v.label)
		}
		if len(j.errs) == before {
			j.set(v, func(t *job.Job) { set(t, &a) })
		}
	}
}

func (j *jobDecoder) alertHTTP(v value) *job.AlertHTTP {
	var h job.AlertHTTP
	known := j.object(v, []field{
		{"url", func(v value) {
			if v.Kind == Mapping {
				_, h.URLEnv = j.alertSecret(v, false)
				return
			}
			h.URL, _ = j.text(v, "https://example.com/alerts")
		}},
		{"headers", func(v value) {
			if !j.want(v, Mapping, "a mapping of names to {env: NAME}") {
				return
			}
			for _, m := range v.Members {
				header := job.AlertHeader{Name: textproto.CanonicalMIMEHeaderKey(m.Name)}
				header.Prefix, header.Env = j.alertSecret(value{m.Value, v.label + "." + m.Name}, true)
				h.Headers = append(h.Headers, header)
			}
		}},
	})
	if known {
		j.needs(v, "url")
	}
	return &h
}

// alertSecret reads where a value is to be found.
func (j *jobDecoder) alertSecret(v value, prefixed bool) (prefix, env string) {
	const example = `{env: ` + job.AlertEnv + `TOKEN}: all who may read the registry see what stands in the file`
	fields := []field{{"env", func(v value) { env, _ = j.text(v, job.AlertEnv+"TOKEN") }}}
	if prefixed {
		fields = append(fields, field{"prefix", func(v value) { prefix, _ = j.text(v, "Bearer ") }})
	}
	if !j.want(v, Mapping, example) {
		return "", ""
	}
	if j.object(v, fields) {
		j.needs(v, "env")
	}
	return prefix, env
}

func (j *jobDecoder) needs(v value, names ...string) {
	for _, name := range names {
		if v.member(name) == nil {
			j.fail(v.At, "%s: no %s", v.label, name)
		}
	}
}
