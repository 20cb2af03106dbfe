//go:build unix

package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/metrics"
)

// shownBy names, for each metric, the test that compares it with what was done to a running binary.
var shownBy = map[string]string{
	"cronce_broker_connected":                   "TestNodeWithoutABrokerIsLiveButNotReady",
	"cronce_broker_reconnects_total":            "TestNodeWithoutABrokerIsLiveButNotReady",
	"cronce_build_info":                         "TestMetricsCountAttemptsAndRetries",
	"cronce_clock_error_seconds":                "TestMetricsShowAWrongClock",
	"cronce_clock_offset_seconds":               "TestMetricsShowAWrongClock",
	"cronce_job_last_success_timestamp_seconds": "TestMetricsCountTheTakeoverFromAKilledWorker",
	"cronce_ledger_errors_total":                "TestMetricsCountWritesThatAFullLedgerRefuses",
	"cronce_ledger_request_seconds":             "TestMetricsCountAttemptsAndRetries",
	"cronce_node_fences_total":                  "TestMetricsCountTheTakeoverFromAKilledWorker",
	"cronce_node_heartbeat_failures_total":      "TestMetricsCountRefusedHeartbeatsAndShowTheTrustThatIsLeft",
	"cronce_node_leases_lost_total":             "TestMetricsCountWhatAFrozenWorkerLost",
	"cronce_node_owed_slots":                    "TestMetricsCountTheTakeoverFromAKilledWorker",
	"cronce_node_stuck_handlers":                "TestStuckHandlerIsReportedAndEndsRunIfWanted",
	"cronce_node_trust_seconds":                 "TestMetricsCountRefusedHeartbeatsAndShowTheTrustThatIsLeft",
	"cronce_producer_caught_up_total":           "TestMetricsCountSlotsOfTheTimeWithoutAFleet",
	"cronce_producer_folded_total":              "TestMetricsCountFoldedCopies",
	"cronce_producer_missed_total":              "TestMetricsCountSlotsOfTheTimeWithoutAFleet",
	"cronce_producer_published_total":           "TestMetricsCountRefusedPublicationsAndShowTheLagOfTheWatermark",
	"cronce_producer_retries_total":             "TestMetricsCountRefusedPublicationsAndShowTheLagOfTheWatermark",
	"cronce_producer_standing_slots":            "TestMetricsCountCopiesOfProducersThatStandBy",
	"cronce_producer_stood_by_total":            "TestMetricsCountCopiesOfProducersThatStandBy",
	"cronce_queue_age_seconds":                  "TestMetricsShowWhatWaitsInAQueueAndForHowLong",
	"cronce_queue_taken_slots":                  "TestMetricsShowWhatWaitsInAQueueAndForHowLong",
	"cronce_queue_waiting_slots":                "TestMetricsShowWhatWaitsInAQueueAndForHowLong",
	"cronce_queue_withheld":                     "TestMetricsShowThatAQueueIsWithheldWhileItsServiceIsNotReady",
	"cronce_server_connections":                 "TestMetricsOfTheServerAgreeWithJetStream",
	"cronce_server_messages":                    "TestMetricsOfTheServerAgreeWithJetStream",
	"cronce_server_slow_consumers_total":        "TestMetricsOfTheServerAgreeWithJetStream",
	"cronce_server_store_bytes":                 "TestMetricsOfTheServerAgreeWithJetStream",
	"cronce_slot_attempts_total":                "TestMetricsCountAttemptsAndRetries",
	"cronce_slot_lateness_seconds":              "TestMetricsShowLateSlotsAfterAPauseOfTheBroker",
	"cronce_slot_outcomes_total":                "TestMetricsCountTheTakeoverFromAKilledWorker",
	"cronce_slot_refused_completions_total":     "TestMetricsCountWhatAFrozenWorkerLost",
	"cronce_slot_retries_total":                 "TestMetricsCountAttemptsAndRetries",
	"cronce_slot_run_seconds":                   "TestMetricsCountAttemptsAndRetries",
	"cronce_slot_takeovers_total":               "TestMetricsCountTheTakeoverFromAKilledWorker",
	"cronce_slots_parked":                       "TestMetricsShowParkedSlots",
	"cronce_slots_running":                      "TestMetricsCountTheTakeoverFromAKilledWorker",
	"cronce_sweep_offers_total":                 "TestMetricsCountMessagesThatTheSweepOffers",
	"cronce_watermark_lag_seconds":              "TestMetricsCountRefusedPublicationsAndShowTheLagOfTheWatermark",
}

// A metric that no test compares with anything may be wrong.
func TestMetricsAreEachShownByATest(t *testing.T) {
	t.Parallel()
	there := map[string]bool{}
	described := make(chan *prometheus.Desc)
	go func() { defer close(described); metrics.New().Describe(described) }()
	for d := range described {
		there[regexp.MustCompile(`fqName: "(\w+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	s := newSite(t)
	s.startServer("127.0.0.1:0", "--metrics-addr", "127.0.0.1:0")
	for name := range s.server.metrics() {
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

// testBodies returns the text of each test in the files metrics*_test.go, by name.
func testBodies(t *testing.T) map[string]string {
	t.Helper()
	bodies := map[string]string{}
	files, err := filepath.Glob("metrics*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text := filetest.Read(t, path)
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
