package job_test

import (
	"encoding/json"
	"testing"

	"github.com/cronce-io/cronce/job"
)

// A handler may read amounts as text, or numbers that no float64 holds.
func TestPayloadOfAJobKeepsTheSpellingOfItsNumbers(t *testing.T) {
	t.Parallel()
	data, err := json.Marshal(job.Job{Name: "report", Payload: json.RawMessage(`{ "b": 1.50, "a": 12345678901234567890, "c": [1e3, -0.0] }`)})
	if err != nil {
		t.Fatal(err)
	}
	var j job.Job
	if err := json.Unmarshal(data, &j); err != nil {
		t.Fatal(err)
	}
	if want := `{"b":1.50,"a":12345678901234567890,"c":[1e3,-0.0]}`; string(j.Payload) != want {
		t.Errorf("%s, want %s", j.Payload, want)
	}
}
