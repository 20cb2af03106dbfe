//go:build unix

package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cronce-io/cronce/metrics"
)

// shownBy says of each metric which test holds it against what was done from outside,
// to a running binary.
var shownBy = map[string]string{
	"cronce_broker_connected":                   "TestHealthWhileTheBrokerIsAway",
	"cronce_broker_reconnects_total":            "TestHealthWhileTheBrokerIsAway",
	"cronce_build_info":                         "TestMetricsOfAttemptsThatFail",
	"cronce_clock_error_seconds":                "TestMetricsOfAWrongClock",
	"cronce_clock_offset_seconds":               "TestMetricsOfAWrongClock",
	"cronce_job_last_success_timestamp_seconds": "TestMetricsOfAKilledWorker",
	"cronce_ledger_errors_total":                "TestMetricsOfAFullLedger",
	"cronce_ledger_request_seconds":             "TestMetricsOfAttemptsThatFail",
	"cronce_node_fences_total":                  "TestMetricsOfAKilledWorker",
	"cronce_node_heartbeat_failures_total":      "TestMetricsOfHeartbeatsThatAreRefused",
	"cronce_node_leases_lost_total":             "TestMetricsOfAFrozenWorker",
	"cronce_node_owed_slots":                    "TestMetricsOfAKilledWorker",
	"cronce_node_stuck_handlers":                "TestHandlerThatDoesNotReturnIsReportedAndEndsRunIfWanted",
	"cronce_node_trust_seconds":                 "TestMetricsOfHeartbeatsThatAreRefused",
	"cronce_producer_caught_up_total":           "TestMetricsOfAFleetThatWasDown",
	"cronce_producer_folded_total":              "TestMetricsOfFoldedCopies",
	"cronce_producer_missed_total":              "TestMetricsOfAFleetThatWasDown",
	"cronce_producer_published_total":           "TestMetricsOfPublicationsThatAreRefused",
	"cronce_producer_retries_total":             "TestMetricsOfPublicationsThatAreRefused",
	"cronce_producer_standing_slots":            "TestMetricsOfProducersThatStandBy",
	"cronce_producer_stood_by_total":            "TestMetricsOfProducersThatStandBy",
	"cronce_queue_age_seconds":                  "TestMetricsOfAQueueWithoutWorkers",
	"cronce_queue_taken_slots":                  "TestMetricsOfAQueueWithoutWorkers",
	"cronce_queue_waiting_slots":                "TestMetricsOfAQueueWithoutWorkers",
	"cronce_queue_withheld":                     "TestMetricsOfAServiceThatIsNotReady",
	"cronce_server_connections":                 "TestMetricsOfTheServer",
	"cronce_server_messages":                    "TestMetricsOfTheServer",
	"cronce_server_slow_consumers_total":        "TestMetricsOfTheServer",
	"cronce_server_store_bytes":                 "TestMetricsOfTheServer",
	"cronce_slot_attempts_total":                "TestMetricsOfAttemptsThatFail",
	"cronce_slot_lateness_seconds":              "TestMetricsOfAPausedBroker",
	"cronce_slot_outcomes_total":                "TestMetricsOfAKilledWorker",
	"cronce_slot_refused_completions_total":     "TestMetricsOfAFrozenWorker",
	"cronce_slot_retries_total":                 "TestMetricsOfAttemptsThatFail",
	"cronce_slot_run_seconds":                   "TestMetricsOfAttemptsThatFail",
	"cronce_slot_takeovers_total":               "TestMetricsOfAKilledWorker",
	"cronce_slots_parked":                       "TestMetricsOfParkedSlots",
	"cronce_slots_running":                      "TestMetricsOfAKilledWorker",
	"cronce_sweep_offers_total":                 "TestMetricsOfLostMessages",
	"cronce_watermark_lag_seconds":              "TestMetricsOfPublicationsThatAreRefused",
}

// A metric that no test compares with anything is not trustworthy.
func TestMetricsAreEachShownByATest(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	described := make(chan *prometheus.Desc)
	go func() { defer close(described); metrics.New().Describe(described) }()
	for d := range described {
		there[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	s := newSite(t)
	server := s.start("server", "server", "--listen", "127.0.0.1:0", "--store", s.path("store"), "--metrics-addr", "127.0.0.1:0")
	for name := range server.metrics() {
		if strings.HasPrefix(name, "cronce_") {
			there[name] = true
		}
	}
	tests := testBodies(t)
	for _, name := range slices.Sorted(maps.Keys(there)) {
		test := shownBy[name]
		if body, ok := tests[test]; !ok {
			t.Errorf("%s: there is no test %q that shows it", name, test)
		} else if !strings.Contains(body, name) {
			t.Errorf("%s: %s does not look at it", name, test)
		}
	}
	for name := range shownBy {
		if !there[name] {
			t.Errorf("there is no metric %s any more", name)
		}
	}
}

// testBodies are the texts of this package's tests, by name.
func testBodies(t *testing.T) map[string]string {
	t.Helper()
	bodies := map[string]string{}
	files, err := filepath.Glob("metrics*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				bodies[f.Name.Name] = string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])
			}
		}
	}
	return bodies
}
