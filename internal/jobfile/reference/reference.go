// Package reference documents the job file for users and editors: each field with its
// kind, default, limits and meaning, as a JSON Schema and as tables in Markdown.
//
// Package jobfile reads the fields and package job validates them; limits and defaults come
// from there. Tests check that the fields are the same, and that examples, defaults and
// limits are true. After you add a field, a test fails until it is here. Then run
//
//	go test ./docs -rewrite
//
// Rejected: these texts in the decoders, because the decoders would be hard to read; a schema
// written by hand, because it would soon be wrong.
package reference

import (
	"fmt"
	"net/http"
	"time"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
	"github.com/cronce-io/cronce/job"
)

// Kind is the kind of a field's value.
type Kind string

const (
	Text     Kind = "text"
	Word     Kind = "one of"       // Field.Words
	Duration Kind = "duration"     // Go's notation: 30s, 1h30m
	Count    Kind = "whole number" // from 1 to Field.Max; 0: no limit
	Size     Kind = "size"         // 16KiB
	Instant  Kind = "instant"      // RFC 3339
	Any      Kind = "any value"    // of JSON
	Texts    Kind = "list of text" // at most Field.Max; 0: no limit
	Mapping  Kind = "mapping"      // of Field.Fields
	TextOr   Kind = "text or mapping"
	Flag     Kind = "true or false"
	Headers  Kind = "mapping of names to values" // each like Field.Fields[0]; at most Field.Max
	Jobs     Kind = "list of mappings"
)

// Field documents a field of a job file.
type Field struct {
	Name string
	Kind Kind

	// Required is true if the mapping that the field belongs to must have it.
	Required bool

	// Default is the value if the field is left out. Empty: see About.
	Default string

	// Limit is a limit in words. Empty: Kind and Max say all.
	Limit string

	Max     int
	Words   []string
	Example string // in YAML
	About   string // whole sentences, in Markdown
	Fields  []Field

	// Empty is true if a text may be empty.
	Empty bool

	// OneOf names members of Fields, exactly one of which must be present.
	OneOf []string

	// With are other members of the mapping, in YAML, that this field needs to be valid.
	With []string

	// Like is a field whose tables explain the members that this one has too. Empty: this one
	// has tables of its own.
	Like string
}

// Fields returns the fields of the whole format: version and jobs.
func Fields() []Field {
	return []Field{
		{Name: "version", Kind: Count, Required: true, Max: 1, Example: "1", About: "The version of this format."},
		{Name: "jobs", Kind: Jobs, Required: true, Example: `[{name: report, schedule: "@hourly", action: {exec: [make]}}]`, About: "The jobs, at least one; no two have the same name.",
			Fields: jobFields(), OneOf: []string{"schedule", "after", "on"}},
	}
}

func jobFields() []Field {
	d := job.Job{Schedule: "@hourly"}.WithDefaults()
	fields := []Field{
		{Name: "name", Kind: Text, Required: true, Example: "report", Limit: "1 to 64 characters of A-Z a-z 0-9 _ -",
			About: "The job's identity. A renamed job is a new one."},
	}
	fields = append(fields, planFields(d)...)
	fields = append(fields, runFields(d)...)
	return append(fields,
		alertField("on_failure", "The target of alerts for slots that failed or expired."),
		like("on_failure", alertField("on_missed", "The target of alerts for slots that were missed.")),
		like("on_failure", alertField("on_success", "The target of alerts for slots that succeeded.")),
		like("on_failure", alertField("on_recovered", "The target of an alert for the first slot that succeeds after one that failed, expired, was missed, or caused an alert of `on_late`. It is sent even if there is no `on_failure`.")),
		like("on_failure", lateField()),
		Field{Name: "heartbeat", Kind: TextOr, Example: "{env: " + job.AlertEnv + "HEARTBEAT}",
			About:  "A URL that is called with GET after each slot that succeeds, so that a service outside, such as healthchecks.io, notices when no slot succeeds any more. It is a URL without user and password, or `{env: NAME}` if it is a secret itself. A call that fails is repeated for up to " + short(job.MaxHeartbeatAge) + ".",
			Fields: []Field{alertEnvField()}},
		actionField(),
		Field{Name: "shadow", Kind: Flag, Default: "false", Example: "true",
			About: "Workers with this file claim and record the job's slots, and do not run the action: a slot ends as `succeeded` and is marked as a shadow. See [migration](migration.md#a-week-in-shadow)."},
	)
}

// planFields returns the fields that decide which slots a job has.
func planFields(d job.Job) []Field {
	return []Field{
		{Name: "schedule", Kind: Text, Default: "(one of the three)", Example: `"0 7 * * MON-FRI"`,
			About: "When: five cron fields, six with seconds first, `@hourly` and the like, `@every 90s` (elapsed time, counted from `from`, else from 1970), `@every 3d` and `@every 2w` (days and weeks of the calendar, counted from the date of `from`, at its time of day on the zone's clock), `@at 2027-01-01T00:00:00Z` (once). `H` in a field is a number that the job's name decides. Days of the month may be `L`, the last one (28 February 2027); `L-3`, three days before it (25 February); `15W`, the day from Monday to Friday that is nearest to the 15th and in its month (Monday, 16 November 2026, since the 15th is a Sunday); `LW`, the last such day (Friday, 29 January 2027). Weekdays may be `FRIL` or `5L`, the last Friday of the month (27 November 2026), and `FRI#2`, the second one (13 November). If both day fields restrict the dates, either day will do. `none`: the job runs only when it is triggered. Instead of a schedule a job may have `after` or `on`."},
		{Name: "after", Kind: Texts, Max: job.MaxAfter, Example: "[extract, check]",
			About: "Other jobs of this namespace. When all of them have succeeded for one instant, this job runs for the same instant."},
		{Name: "on", Kind: Mapping, Example: "{stream: ORDERS, subject: orders.paid}",
			About: "Each message of a stream of yours that is stored after the job was created starts one run, with the message's data as payload. The default of `overlap` is then `allow`.",
			Fields: []Field{
				{Name: "stream", Kind: Text, Required: true, Example: "ORDERS", About: "A JetStream stream."},
				{Name: "subject", Kind: Text, Required: true, Example: "orders.paid", About: "Its messages on this subject, which may have wildcards."},
			}},
		{Name: "timezone", Kind: Text, Default: d.Timezone, Example: "Europe/Berlin", About: "An IANA name. Its rules are built into the program."},
		{Name: "dst_gap", Kind: Word, Default: string(d.DSTGap), Words: codec.Strings(job.GapAfter, job.GapSkip), Example: "skip",
			About: "A wall time that does not exist, because the clocks go forward, runs at the first instant `after` the gap, or not at all. It does not concern jobs whose hour field begins with `*`."},
		{Name: "dst_overlap", Kind: Word, Default: string(d.DSTOverlap), Words: codec.Strings(job.RepeatFirst, job.RepeatSecond, job.RepeatBoth), Example: "both",
			About: "A wall time that comes twice, because the clocks go back, runs at the `first` occurrence, the `second`, or `both`. It does not concern jobs whose hour field begins with `*`."},
		{Name: "spread", Kind: Duration, Limit: "whole seconds, at most " + short(job.MaxSpread), Example: "5m",
			About: "Delays the due time by less than this, by a stable hash of the name, so that many jobs do not start at once. The slot keeps its instant."},
		{Name: "from", Kind: Instant, Example: "2026-01-01T00:00:00Z", About: "The beginning of the schedule: no slot is before this instant. `@every` counts from it."},
		{Name: "until", Kind: Instant, Example: "2027-01-01T00:00:00Z", About: "The end of the schedule: slots are before this instant."},
		{Name: "exclude", Kind: Texts, Example: `["2026-12-25", "* * * * SUN"]`,
			About: "When the job does not run: dates in the job's time zone, or cron expressions."},
		{Name: "shards", Kind: Count, Max: job.MaxShards, Default: "1", Example: "8",
			About: "Splits each slot into this many shards, each with its own record, retries and outcome."},
	}
}

// runFields returns the fields that decide how a slot runs.
func runFields(d job.Job) []Field {
	return []Field{
		{Name: "queue", Kind: Text, Default: d.Queue, Limit: "as for `name`", Example: "reports", About: "Only workers of this queue run the job."},
		{Name: "payload", Kind: Any, Limit: fmt.Sprintf("%d KiB as JSON", job.MaxPayload>>10), Example: "{format: pdf}", About: "Passed to the action as JSON."},
		{Name: "timeout", Kind: Duration, Example: "30s", About: "Bounds one attempt. Without it an attempt has no limit."},
		{Name: "deadline", Kind: Duration, Example: "10m", About: "If a slot has not started this long after its due time, it ends as `expired`. For a slot that was caught up, the time counts from its publication."},
		{Name: "retry", Kind: Mapping, Example: "{attempts: 5, backoff: 2s, max_backoff: 1m}", About: "How often and how soon a failed attempt is repeated, always within the horizon.", Fields: []Field{
			{Name: "attempts", Kind: Count, Max: job.MaxAttempts, Default: fmt.Sprint(d.Retry.Attempts), Example: "5",
				About: "The number of starts. The first one counts, and so do starts on workers that died. With 1 a slot starts at most once."},
			{Name: "backoff", Kind: Duration, Default: short(d.Retry.Backoff), Example: "2s", About: "The delay after the first failure. It doubles, with jitter."},
			{Name: "max_backoff", Kind: Duration, Default: short(d.Retry.MaxBackoff) + ", or `backoff` if that is more", Limit: "not below `backoff`", Example: "1m", About: "The longest delay."},
		}},
		{Name: "catch_up", Kind: Mapping, Example: "{policy: all, within: 12h, max: 10}",
			About: "What happens to slots that were not published within a minute of their due time, because no producer ran, or the job was paused. Slots that do not run are recorded as `missed`.", Fields: []Field{
				{Name: "policy", Kind: Word, Default: string(d.CatchUp.Policy), Words: codec.Strings(job.CatchUpLatest, job.CatchUpAll, job.CatchUpNone), Example: "all",
					About: "Which missed slots run: the newest one (`latest`), each (`all`), or `none`."},
				{Name: "within", Kind: Duration, Default: "the horizon, " + short(job.DefaultHorizon), Example: "12h", About: "How old a missed slot may be and still run."},
				{Name: "max", Kind: Count, Max: job.MaxCatchUp, Default: fmt.Sprint(d.CatchUp.Max), Example: "10", About: "Bounds `all`: how many of the newest missed slots run."},
			}},
		{Name: "overlap", Kind: Word, Default: string(d.Overlap) + "; with `on` allow", Example: "queue",
			Words: codec.Strings(job.Overlaps()...),
			About: "What happens to a slot that is on time while an older slot of the job has no outcome yet: it is `skipped` (`skip`), waits in a queue (`queue`), waits until a newer slot replaces it (`latest`), cancels the older one (`replace`), or runs at the same time (`allow`). Slots that were caught up, backfilled or triggered wait: they are not skipped, and `replace` does not cancel them."},
		{Name: "concurrency", Kind: Count, Max: job.MaxConcurrency, Default: "1; with `overlap: allow` no limit", Example: "2",
			About: "How many slots of the job may run at once in the whole fleet before `overlap` applies."},
		{Name: "on_lease_lost", Kind: Word, Default: string(d.OnLeaseLost), Words: codec.Strings(job.LeaseLostCancel, job.LeaseLostFinish), Example: "finish",
			About: "If a node cannot reach the broker for longer than the lease, its handlers are cancelled before another node may start their slots (`cancel`), or they may finish (`finish`). Then two handlers may run one slot at the same time."},
		{Name: "output", Kind: Size, Default: fmt.Sprintf("%dKiB", job.DefaultOutput>>10), Limit: fmt.Sprintf("at most %dKiB", job.MaxOutput>>10), Example: "16KiB",
			About: "How much of an attempt's output, or of the answer to its request, the slot's record keeps: half from the beginning, and half from the end."},
	}
}

func like(name string, f Field) Field {
	f.Like = name
	return f
}

func alertEnvField() Field {
	return Field{Name: "env", Kind: Text, Required: true, Limit: "begins with " + job.AlertEnv, Example: job.AlertEnv + "TOKEN",
		About: "The environment variable with the value, on the node that delivers the alert."}
}

// lateField returns the field of on_late, an alert with one more member.
func lateField() Field {
	f := alertField("on_late", "The target of alerts for slots that have not started in time. Producers check twice a minute, so an alert may be half a minute late. Jobs without a schedule cannot have it.")
	f.Example = "{after: 5m, nats: {subject: alerts.jobs}}"
	f.Fields = append([]Field{{Name: "after", Kind: Duration, Required: true, Limit: "at most " + short(job.MaxLateAfter), Example: "5m",
		About: "How long after its due time a slot must have started. Only `on_late` has this field."}}, f.Fields...)
	return f
}

func alertField(name, about string) Field {
	env := alertEnvField()
	prefix := Field{Name: "prefix", Kind: Text, Limit: "256 bytes", Example: `"Bearer "`, About: "Text before the value."}
	return Field{Name: name, Kind: Mapping, OneOf: []string{"http", "nats"}, Example: "{nats: {subject: alerts.jobs}}",
		About: about + " It is stored in the registry, where every login that reads jobs can read it, so name secrets by their environment variables. Any worker of the fleet delivers an alert, at least once.",
		Fields: []Field{
			{Name: "http", Kind: Mapping, Example: `{url: "https://example.com/alerts"}`, About: "A webhook: a POST of JSON.", Fields: []Field{
				{Name: "url", Kind: TextOr, Required: true, Example: `"https://example.com/alerts"`, About: "A URL without user and password, or `{env: NAME}` if it is a secret itself.", Fields: []Field{env}},
				{Name: "headers", Kind: Headers, Max: job.MaxAlertHeaders, Example: "{Authorization: {prefix: \"Bearer \", env: " + job.AlertEnv + "TOKEN}}",
					About: "Headers whose values come from the environment.", Fields: []Field{{Kind: Mapping, Fields: []Field{env, prefix}}}},
			}},
			{Name: "nats", Kind: Mapping, Example: "{subject: alerts.jobs}", About: "A message.", Fields: []Field{
				{Name: "subject", Kind: Text, Required: true, Limit: "no wildcards, not below `$`", Example: "alerts.jobs", About: "The subject that it is published to."},
			}},
			{Name: "format", Kind: Word, Words: job.AlertFormats(), Example: "slack", With: []string{"key: {env: " + job.AlertEnv + "KEY}"},
				About: "Writes the body for a service: an incoming webhook of Slack, a workflow of Teams, a webhook of Discord, PagerDuty's Events API v2 (with `key`), or a topic of ntfy, whose `url` is that of the topic. It needs `http`. Without it and without `template` the body is the event as JSON."},
			{Name: "template", Kind: Text, Limit: fmt.Sprintf("%d KiB", job.MaxAlertTemplate>>10), Example: `"{\"text\": {{json .Title}}}"`,
				About: "Writes the body, in the notation of Go's [text/template](https://pkg.go.dev/text/template), without loops. See [templates](#templates-of-alerts)."},
			{Name: "key", Kind: Mapping, Example: "{env: " + job.AlertEnv + "KEY}", With: []string{"format: pagerduty"}, About: "A secret for the body: PagerDuty's integration key, or `.Key` of a template.", Fields: []Field{env}},
		}}
}

func actionField() Field {
	secret := []Field{
		{Name: "prefix", Kind: Text, Example: `"Bearer "`, About: "Text before the value."},
		{Name: "env", Kind: Text, Example: "API_TOKEN", About: "A variable of the worker's environment, read at the start. A worker of the job's queue does not start without it."},
		{Name: "file", Kind: Text, Example: "/run/secrets/token", About: "A file, read at each request."},
	}
	return Field{Name: "action", Kind: Mapping, Required: true, OneOf: []string{"exec", "http", "nats"}, Example: "{exec: [/bin/echo, hello]}",
		About: "What the nodes that read this file do for a slot. The registry does not store it. `cronce job apply` accepts jobs without an action.",
		Fields: []Field{
			{Name: "exec", Kind: Texts, Example: `["/bin/sh", "-c", "make report"]`,
				About: "A program and its arguments, without a shell. It gets the payload on its standard input. Exit status 0 is success, 65 fails for good, anything else is retried."},
			{Name: "env", Kind: Headers, Example: "{LANG: C.UTF-8, API_TOKEN: {file: /run/secrets/token}}",
				About: "With `exec`: variables of the program, in place of the worker's. A value is text, or comes from the worker's environment or a file. Cronce shows and logs none of them, but what the program prints is kept as it is. The variables of the slot (`CRONCE_JOB` and so on) cannot be set.",
				Fields: []Field{{Kind: TextOr, Empty: true, Limit: fmt.Sprintf("%d KiB", spec.MaxVariable>>10), OneOf: []string{"env", "file"}, Fields: []Field{
					{Name: "env", Kind: Text, Example: "REPORT_TOKEN", About: "A variable of the worker's environment, read at the start. A worker of the job's queue does not start without it."},
					{Name: "file", Kind: Text, Example: "/run/secrets/token", About: "A file, read by the worker for each run. A line break at its end does not count."},
				}}}},
			{Name: "clean_env", Kind: Flag, Default: "false", Example: "true",
				About: "With `exec`: from the worker's environment, the program gets only `PATH` and the variables of `pass_env`."},
			{Name: "pass_env", Kind: Texts, Example: "[NATS_URL, NATS_CREDS]",
				About: "With `exec`: variables of the worker's environment that the program gets although they may hold a login, or although `clean_env` is set. Without `clean_env` it gets all other variables anyway (see [below](#flags-and-environment))."},
			{Name: "dir", Kind: Text, Default: "the worker's", Example: "/srv/report",
				About: "With `exec`: the working directory. `~` is the home directory of `user`, or of the worker's user. A relative path of the program (`./report`) begins there."},
			{Name: "user", Kind: Text, Default: "the worker's", Limit: "a name, or a number in quotes", Example: "www-data",
				About: "With `exec`: the user that the program runs as, with that user's groups and with `HOME`, `USER` and `LOGNAME` set. Only a worker that runs as root can change the user, and not on Windows. Any other worker refuses to start if it works on the job's queue."},
			{Name: "group", Kind: Text, Default: "that of `user`", Limit: "as for `user`", Example: "www-data",
				About: "With `exec`: the group that the program runs as. Without `user`, the worker's user stays."},
			{Name: "http", Kind: Mapping, Example: `{url: "http://127.0.0.1:8080/jobs/report"}`, About: "A request to a service, with the payload. 2xx is success, 400, 410 and 422 fail for good, anything else is retried.", Fields: []Field{
				{Name: "url", Kind: Text, Required: true, Limit: "http or https", Example: `"http://127.0.0.1:8080/jobs/report"`, About: "Absolute."},
				{Name: "method", Kind: Word, Default: http.MethodPost, Words: spec.Methods(), Example: "PUT", About: "GET and HEAD send no payload."},
				{Name: "headers", Kind: Headers, Example: `{Authorization: {prefix: "Bearer ", env: API_TOKEN}}`,
					About:  "Sent in addition to the headers of the slot. A value is text, or comes from the environment or a file, and is then never shown.",
					Fields: []Field{{Kind: TextOr, Limit: fmt.Sprintf("%d KiB", spec.MaxHeader>>10), Fields: secret, OneOf: []string{"env", "file"}}}},
				{Name: "timeout", Kind: Duration, Default: short(action.DefaultTimeout) + ", if the job has no `timeout` either", Example: "20s", About: "Bounds one request."},
				{Name: "ready", Kind: Text, Limit: "http or https", Example: `"http://127.0.0.1:8080/ready"`, About: "A URL that this node calls every second. While the answer is not 2xx, this node takes no slots of the job's queue."},
			}},
			{Name: "nats", Kind: Mapping, Example: "{subject: svc.report, timeout: 20s}", About: "A request over the node's own connection. Any answer is success, unless it is an error of a NATS service, or of a stream that did not store the request.", Fields: []Field{
				{Name: "subject", Kind: Text, Required: true, Limit: fmt.Sprintf("no wildcards; at most %d bytes", spec.MaxSubject), Example: "svc.report", About: "Where the service listens."},
				{Name: "timeout", Kind: Duration, Default: short(action.DefaultTimeout) + ", if the job has no `timeout` either", Example: "20s", About: "Bounds one request."},
			}},
		}}
}

// short formats a duration as people write it: 1m, not 1m0s.
func short(d time.Duration) string {
	switch {
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
