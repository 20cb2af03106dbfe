package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the files that are made from others")

// panel is one panel of the dashboard: its title, what it tells, and an expression with its
// legend for each series.
type panel struct {
	title, about, unit string
	stat               bool // one number, and no graph
	stack              bool
	expressions        []string // expression, legend, expression, legend, ...
}

type row struct {
	title  string
	panels []panel
}

func q(of, metric string) string {
	return "histogram_quantile(" + of + ", sum by (le, queue) (rate(" + metric + "_bucket[$__rate_interval])))"
}

// dashboard lists the panels. $job is the selection of jobs.
var dashboard = []row{
	{"Fleet", []panel{
		{title: "Nodes", about: "Nodes that are scraped.", stat: true, expressions: []string{`count(cronce_node_trust_seconds)`, ""}},
		{title: "Versions", about: "More than one: an upgrade is under way. Nodes whose time zone data differ compute different slots.", stat: true, expressions: []string{`count by (version, tzdata) (cronce_build_info)`, "{{version}}, tzdata {{tzdata}}"}},
		{title: "Slots a minute", about: "Outcomes that were recorded.", stat: true, expressions: []string{`60 * sum(rate(cronce_slot_outcomes_total[5m]))`, ""}},
		{title: "Failed, 24 h", about: "Slots whose attempts are spent. \"cronce slot ls --state failed\" lists them.", stat: true, expressions: []string{`sum(increase(cronce_slot_outcomes_total{state="failed"}[24h])) or vector(0)`, ""}},
		{title: "Watermark", about: "How long ago the time lies up to which all slots are published: below 10 s in a fleet that produces.", unit: "s", stat: true, expressions: []string{`min(cronce_watermark_lag_seconds)`, ""}},
		{title: "Oldest slot that waits", about: "For how long it has been waiting without a worker.", unit: "s", stat: true, expressions: []string{`max(cronce_queue_age_seconds)`, ""}},
	}},
	{"Slots", []panel{
		{title: "Outcomes", about: "Outcomes a second, by state.", stack: true, unit: "ops", expressions: []string{`sum by (state) (rate(cronce_slot_outcomes_total{job=~"$job"}[$__rate_interval]))`, "{{state}}"}},
		{title: "Lateness", about: "From the due time to the start of the first attempt.", unit: "s", expressions: []string{q("0.5", "cronce_slot_lateness_seconds"), "{{queue}} half", q("0.99", "cronce_slot_lateness_seconds"), "{{queue}} 99 %"}},
		{title: "Run time", about: "How long a handler runs, once per attempt.", unit: "s", expressions: []string{q("0.5", "cronce_slot_run_seconds"), "{{queue}} half", q("0.99", "cronce_slot_run_seconds"), "{{queue}} 99 %"}},
		{title: "Handlers that run", about: "Compare with --concurrency.", stack: true, expressions: []string{`sum by (instance, queue) (cronce_slots_running)`, "{{instance}} {{queue}}"}},
		{title: "Attempts beyond the first", about: "Retries, takeovers from dead nodes, and completions of workers that had been frozen.", unit: "ops", expressions: []string{
			`sum by (queue) (rate(cronce_slot_attempts_total[$__rate_interval]))`, "attempts {{queue}}", `sum(rate(cronce_slot_retries_total{job=~"$job"}[$__rate_interval])) or vector(0)`, "retries",
			`sum(rate(cronce_slot_takeovers_total[$__rate_interval]))`, "takeovers", `sum(rate(cronce_slot_refused_completions_total[$__rate_interval]))`, "completions refused"}},
		{title: "Slots that wait for their job", about: "Slots a second that had to stand in their job's line, until others of the job had ended.", stack: true, unit: "ops", expressions: []string{`sum by (queue) (rate(cronce_slot_waits_total[$__rate_interval]))`, "{{queue}}"}},
	}},
	{"Jobs", []panel{
		{title: "Since the last success", about: "By job. An alert for those that matter: CronceJobNotSucceeded.", unit: "s", expressions: []string{`time() - max by (job) (cronce_job_last_success_timestamp_seconds{job=~"$job"})`, "{{job}}"}},
		{title: "Failures", about: "Slots that failed, by job.", stack: true, expressions: []string{`sum by (job) (increase(cronce_slot_outcomes_total{job=~"$job", state=~"failed|expired|missed"}[1h])) or vector(0)`, "{{job}}"}},
	}},
	{"Queues", []panel{
		{title: "Waiting", about: "Slots that no worker has been given yet.", expressions: []string{`max by (queue) (cronce_queue_waiting_slots)`, "{{queue}}"}},
		{title: "Given to workers", about: "They run, or wait for their next attempt or their turn.", expressions: []string{`max by (queue) (cronce_queue_taken_slots)`, "{{queue}}"}},
		{title: "Age of the oldest", about: "How long the oldest slot has been waiting that no worker has been given.", unit: "s", expressions: []string{`max by (queue) (cronce_queue_age_seconds)`, "{{queue}}"}},
		{title: "Withheld", about: "Nodes that take no slots of a queue, since a service that its jobs need is not ready.", expressions: []string{`sum by (queue) (cronce_queue_withheld)`, "{{queue}}"}},
	}},
	{"Producers", []panel{
		{title: "Publications", about: "What the producers sent, by what became of it.", unit: "ops", expressions: []string{
			`sum(rate(cronce_producer_published_total[$__rate_interval]))`, "published", `sum(rate(cronce_producer_folded_total[$__rate_interval]))`, "folded",
			`sum(rate(cronce_producer_caught_up_total[$__rate_interval]))`, "caught up", `sum(rate(cronce_producer_missed_total[$__rate_interval]))`, "missed", `sum(rate(cronce_producer_retries_total[$__rate_interval]))`, "repeated"}},
		{title: "Standing by", about: "Copies that are held while another producer publishes.", expressions: []string{
			`sum by (instance) (cronce_producer_standing_slots)`, "{{instance}} holds", `sum by (instance) (rate(cronce_producer_stood_by_total[$__rate_interval]))`, "{{instance}} stood by, a second"}},
		{title: "Watermark", about: "As each node sees it.", unit: "s", expressions: []string{`cronce_watermark_lag_seconds`, "{{instance}}"}},
		{title: "Slots offered again", about: "Their messages were lost.", expressions: []string{`sum(increase(cronce_sweep_offers_total[1h]))`, "in an hour"}},
	}},
	{"Nodes", []panel{
		{title: "Trust", about: "For how long a node trusts itself without another acknowledged heartbeat.", unit: "s", expressions: []string{`cronce_node_trust_seconds`, "{{instance}}"}},
		{title: "Heartbeats and leases", about: "Heartbeats that failed, leases that were lost, and nodes that were declared dead.", expressions: []string{
			`sum(increase(cronce_node_heartbeat_failures_total[5m]))`, "heartbeats failed", `sum(increase(cronce_node_leases_lost_total[5m]))`, "leases lost", `sum(increase(cronce_node_fences_total[5m]))`, "nodes declared dead"}},
		{title: "Clocks", about: "The broker's clock minus that of the machine, and how far that may be wrong.", unit: "s", expressions: []string{`cronce_clock_offset_seconds`, "{{instance}}", `cronce_clock_error_seconds`, "{{instance}} error"}},
		{title: "Slots of a node", about: "Slots that the node works on, from their delivery until they are recorded; and handlers that do not return.", expressions: []string{`cronce_node_owed_slots`, "{{instance}}", `cronce_node_stuck_handlers`, "{{instance}} stuck"}},
		{title: "Connections", about: "Nodes that are connected to NATS, and reconnections.", expressions: []string{`sum(cronce_broker_connected)`, "connected", `sum(increase(cronce_broker_reconnects_total[5m]))`, "reconnected"}},
		{title: "Processes", about: "CPU cores in use.", expressions: []string{`rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) (cronce_node_trust_seconds or cronce_server_connections)`, "{{instance}}"}},
		{title: "Memory", about: "Resident.", unit: "bytes", expressions: []string{`process_resident_memory_bytes and on (instance) (cronce_node_trust_seconds or cronce_server_connections)`, "{{instance}}"}},
	}},
	{"Broker", []panel{
		{title: "Requests to the ledger", about: "How long 99 % of them take at most.", unit: "s", expressions: []string{`histogram_quantile(0.99, sum by (le, request) (rate(cronce_ledger_request_seconds_bucket[$__rate_interval])))`, "{{request}}"}},
		{title: "Requests refused or given up", about: "The disk or the bucket is full, or the login may not write.", unit: "ops", expressions: []string{`sum by (request) (rate(cronce_ledger_errors_total[$__rate_interval]))`, "{{request}}"}},
		{title: "Clients of the embedded server", about: "And those that were cut off because they read too slowly.", expressions: []string{`cronce_server_connections`, "{{instance}}", `increase(cronce_server_slow_consumers_total[5m])`, "{{instance}} cut off"}},
		{title: "Stored by the embedded server", about: "By all its streams.", unit: "bytes", expressions: []string{`cronce_server_store_bytes`, "{{instance}}"}},
		{title: "Messages in the embedded server", about: "In all its streams.", expressions: []string{`cronce_server_messages`, "{{instance}}"}},
	}},
}

type object = map[string]any

// rendered is the dashboard as Grafana imports it.
func rendered() object {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	var panels []object
	y, id := 0, 0
	for _, r := range dashboard {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.title, "collapsed": false, "panels": []any{}, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		x, height := 0, 8
		for _, p := range r.panels {
			id++
			width := 8
			if p.stat {
				width, height = 4, 4
			}
			if x+width > 24 {
				x, y = 0, y+height
			}
			panels = append(panels, renderedPanel(p, id, source, object{"x": x, "y": y, "w": width, "h": height}))
			x += width
		}
		y += height
	}
	variable := func(name, label, kind string, more object) object {
		v := object{"name": name, "label": label, "type": kind}
		for k, value := range more {
			v[k] = value
		}
		return v
	}
	return object{
		"uid": "cronce", "title": "Cronce", "tags": []string{"cronce"}, "schemaVersion": 39, "editable": true, "graphTooltip": 1,
		"refresh": "30s", "time": object{"from": "now-3h", "to": "now"}, "timezone": "browser", "panels": panels,
		"templating": object{"list": []object{
			variable("datasource", "Prometheus", "datasource", object{"query": "prometheus"}),
			variable("job", "Job", "query", object{
				"datasource": source, "query": "label_values(cronce_slot_outcomes_total, job)", "refresh": 2, "sort": 1,
				"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
			}),
		}},
	}
}

func renderedPanel(p panel, id int, source, at object) object {
	var targets []object
	for i := 0; i < len(p.expressions); i += 2 {
		targets = append(targets, object{"refId": string(rune('A' + i/2)), "datasource": source, "expr": p.expressions[i], "legendFormat": p.expressions[i+1]})
	}
	kind, custom, options := "timeseries", object{"fillOpacity": 10, "showPoints": "never"}, object{"tooltip": object{"mode": "multi"}}
	if p.stack {
		custom["stacking"] = object{"mode": "normal"}
	}
	if p.stat {
		kind, custom, options = "stat", object{}, object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}}
	}
	unit := p.unit
	if unit == "" {
		unit = "short"
	}
	return object{
		"id": id, "type": kind, "title": p.title, "description": p.about, "datasource": source, "gridPos": at, "targets": targets, "options": options,
		"fieldConfig": object{"defaults": object{"unit": unit, "custom": custom}, "overrides": []any{}},
	}
}

// made compares a file with what it is made from, or rewrites it.
func made(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what it is made from (%v): go test ./deploy -update, and read the diff", path, err)
	}
}

func TestDashboardIsGenerated(t *testing.T) {
	t.Parallel()
	text, err := json.MarshalIndent(rendered(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	made(t, "grafana/cronce.json", append(text, '\n'))
}
