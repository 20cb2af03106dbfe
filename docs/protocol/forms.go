package protocol

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// Form lists the members of a file's cases that are answers. All others are questions.
type Form struct {
	Answers []string

	// Steps are the answers in each of "steps"; nil: a case has no steps.
	Steps []string

	// May are the answers that a client may leave out if it lists them in "without".
	May []string

	// Unordered is the list of messages whose order does not matter.
	Unordered string
}

// forms are the files of vectors, in the order in which a client is asked.
var forms = []struct {
	file string
	Form
}{
	{"names", Form{Answers: []string{"key", "job", "at", "token", "range", "shard", "shards", "trace_id", "refused"}, May: []string{"trace_id"}}},
	{"messages", Form{Answers: []string{
		"slot", "job_revision", "node", "due", "caught_up", "chained", "event", "backfill", "missed", "missed_last", "offer", "traceparent", "impossible", "bulk", "written", "refused",
	}, May: []string{"written", "traceparent"}}},
	{"values", Form{Answers: []string{"unknown", "written", "refused"}, May: []string{"unknown", "written"}}},
	{"definitions", Form{Answers: []string{"canonical", "hash"}}},
	{"registry", Form{Steps: []string{"change", "value", "plans", "pauses"}}},
	{"layout", Form{Answers: []string{"streams", "consumer", "consumer_of_bulk", "consumer_of_timers", "writes", "event_subject"}}},
	{"schedules", Form{Answers: []string{"slots", "delay", "refused"}}},
	{"clocks", Form{Answers: []string{"offset", "error"}}},
	{"fences", Form{Answers: []string{"dead", "wait", "at", "written"}}},
	{"producers", Form{Answers: []string{"messages", "missed_singly", "watermark_after"}, May: []string{"watermark_after"}, Unordered: "messages"}},
	{"claims", Form{Steps: []string{"action", "delay", "at", "record", "conflict"}}},
	{"cancels", Form{Answers: []string{"key", "fence", "cause", "refused"}}},
	{"shards", Form{Steps: []string{"action", "of", "at", "record"}}},
	{"chains", Form{Answers: []string{"messages"}, Unordered: "messages"}},
	{"alerts", Form{Answers: []string{"msg_id", "event"}}},
	{"locks", Form{Answers: []string{"place", "in_way", "displaces", "over", "next"}}},
	{"calls", Form{Answers: []string{"messages"}, Unordered: "messages"}},
	{"events", Form{Answers: []string{"takes", "slots", "due", "refused"}}},
	{"sweeps", Form{Answers: []string{"messages"}, Unordered: "messages"}},
	{"shares", Form{Answers: []string{"hash", "e", "r", "of"}}},
}

// Names returns the names of the files of vectors, without ".json", in the order in which a client is asked.
func Names() (names []string) {
	for _, f := range forms {
		names = append(names, f.file)
	}
	return names
}

// FormOf returns the form of a file's cases.
func FormOf(file string) Form {
	for _, f := range forms {
		if f.file == file {
			return f.Form
		}
	}
	return Form{}
}

// Members are the members of a JSON object, in the spelling of the file.
type Members map[string]json.RawMessage

// Read returns the whole cases of a file.
func Read(file string) (cases []Members, err error) {
	data, err := Files.ReadFile(file + ".json")
	if err != nil {
		return nil, fmt.Errorf("read vectors: %w", err)
	}
	if file == "shares" {
		cases, err = readShares(data)
	} else {
		err = json.Unmarshal(data, &cases)
	}
	if err != nil {
		return nil, fmt.Errorf("read vectors %s: %w", file, err)
	}
	return cases, nil
}

// readShares reads the four lists of shares.json. Member "about" of a case names its list.
func readShares(data []byte) (cases []Members, err error) {
	var lists map[string][]Members
	if err := json.Unmarshal(data, &lists); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		for _, c := range lists[name] {
			c["about"], _ = json.Marshal(name)
			if of, ok := c["of"]; ok { // it maps jobs to nodes: the jobs are the question, the nodes the answer
				var nodes map[string]string
				if err := json.Unmarshal(of, &nodes); err != nil {
					return nil, err
				}
				c["jobs"], _ = json.Marshal(slices.Sorted(maps.Keys(nodes)))
			}
			cases = append(cases, c)
		}
	}
	return cases, nil
}

// Decode reads one JSON value. Its numbers keep their spelling.
func Decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}

// Divide splits a case into its question and its answer.
func (f Form) Divide(of Members) (ask, want map[string]any, err error) {
	if ask, want, err = split(of, f.Answers); err != nil {
		return nil, nil, err
	}
	if slices.Contains(f.Answers, "trace_id") { // names
		// A question that has no ID names the slot by its key.
		if key, ok := of["key"]; ok && of["id"] == nil {
			ask["key"] = key
		}
		if of["refused"] != nil {
			delete(want, "key")
		}
	}
	if f.Steps == nil {
		return ask, want, nil
	}
	var steps []Members
	if err := json.Unmarshal(of["steps"], &steps); err != nil {
		return nil, nil, err
	}
	asks, wants := make([]any, len(steps)), make([]any, len(steps))
	for i, s := range steps {
		if asks[i], wants[i], err = split(s, f.Steps); err != nil {
			return nil, nil, err
		}
	}
	ask["steps"], want["steps"] = asks, wants
	return ask, want, nil
}

func split(of Members, answers []string) (ask, want map[string]any, err error) {
	ask, want = map[string]any{}, map[string]any{}
	for name, value := range of {
		if !slices.Contains(answers, name) {
			ask[name] = value
			continue
		}
		var v any
		if err := Decode(value, &v); err != nil {
			return nil, nil, err
		}
		want[name] = v
	}
	return ask, want, nil
}

// AnswersOf returns the answer of a whole case of the file, for tests that have whole cases.
func AnswersOf(file string, data []byte) (map[string]any, error) {
	var of Members
	if err := json.Unmarshal(data, &of); err != nil {
		return nil, fmt.Errorf("read case of %s: %w", file, err)
	}
	_, want, err := FormOf(file).Divide(of)
	return want, err
}
