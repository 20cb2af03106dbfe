package docs_test

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"

	"github.com/cronce-io/cronce/docs/protocol"
)

// asClient is the environment variable with which this test program is a client under test.
const asClient = "CRONCE_TEST_VECTORS_CLIENT"

// answerers are how the Go code answers the vectors: the functions of the tests of this
// package. The others are held against the code where it can be reached.
var answerers = map[string]func(*testing.T, json.RawMessage) any{
	"names": by(answerName), "messages": by(answerMessage), "values": by(answerValue), "definitions": by(answerDefinition),
	"registry": by(answerRegistry), "layout": by(answerLayout), "schedules": by(answerSchedule), "fences": by(answerFence),
	"producers": by(answerProducer), "claims": by(answerClaim), "cancels": by(answerCancel), "shards": by(answerShard),
	"chains": by(answerChain), "alerts": by(answerAlert), "locks": by(answerLock), "calls": by(answerCall), "events": by(answerEvent), "sweeps": by(answerSweep),
}

func by[C any](answer func(*testing.T, C) C) func(*testing.T, json.RawMessage) any {
	return func(t *testing.T, ask json.RawMessage) any {
		var c C
		if err := json.Unmarshal(ask, &c); err != nil {
			t.Fatal(err)
		}
		return answer(t, c)
	}
}

// TestClientOfTheVectors is not a test: it answers questions on standard input, as any client
// that "cronce-lab conformance vectors" starts.
func TestClientOfTheVectors(t *testing.T) {
	if os.Getenv(asClient) == "" {
		t.Skip("only TestGoAnswersTheVectors of lab/conformance runs this")
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 4<<20)
	for in.Scan() {
		var q struct {
			Case  string          `json:"case"`
			About string          `json:"about"`
			Ask   json.RawMessage `json:"ask"`
		}
		if err := json.Unmarshal(in.Bytes(), &q); err != nil {
			t.Fatal(err)
		}
		reply := map[string]any{"case": q.Case}
		if answer := answerers[q.About]; answer != nil {
			reply["answer"] = answersOf(t, q.About, answer(t, q.Ask))
		} else {
			reply["leave"] = "the tests of package producer and of internal/fleet/clock answer it"
		}
		data := raw(t, reply)
		if _, err := os.Stdout.Write(append(data, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	if !t.Failed() {
		os.Exit(0) // without the line that a test program prints
	}
}

// answersOf takes the answers out of a whole case.
func answersOf(t *testing.T, file string, c any) any {
	t.Helper()
	answers, err := protocol.AnswersOf(file, raw(t, c))
	if err != nil {
		t.Fatal(err)
	}
	return answers
}
