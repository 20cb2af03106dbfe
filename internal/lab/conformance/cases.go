package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/cronce-io/cronce/docs/protocol"
)

// Case is one case of the vectors: a question to the client, and the expected answer.
type Case struct {
	// ID is the file and the number of the case in it: "claims/12".
	ID   string
	File string
	Name string

	// Ask has the members of the case that are the question, and want those that are the answer. A
	// question keeps the spelling of the vector, because the order of a payload's members counts.
	Ask  map[string]any
	want map[string]any

	Musts []string
}

// form lists the members of a file's cases that are answers. All others are questions.
type form struct {
	answers []string

	// steps are the answers in each of "steps"; nil: a case has no steps.
	steps []string

	// may are the answers that a client may leave out if it lists them in "without".
	may []string

	// unordered is the list of messages whose order does not matter.
	unordered string
}

// forms are the files of vectors, in the order in which a client is asked.
var forms = []struct {
	file string
	form
}{
	{"names", form{answers: []string{"key", "job", "at", "token", "range", "shard", "shards", "trace_id", "refused"}, may: []string{"trace_id"}}},
	{"messages", form{answers: []string{
		"slot", "job_revision", "node", "due", "caught_up", "chained", "event", "backfill", "missed", "missed_last", "offer", "traceparent", "impossible", "written", "refused",
	}, may: []string{"written", "traceparent"}}},
	{"values", form{answers: []string{"unknown", "written", "refused"}, may: []string{"unknown", "written"}}},
	{"definitions", form{answers: []string{"canonical", "hash"}}},
	{"registry", form{steps: []string{"change", "value", "plans", "pauses"}}},
	{"layout", form{answers: []string{"streams", "consumer", "consumer_of_timers", "writes", "event_subject"}}},
	{"schedules", form{answers: []string{"slots", "delay", "refused"}}},
	{"clocks", form{answers: []string{"offset", "error"}}},
	{"fences", form{answers: []string{"dead", "wait", "at", "written"}}},
	{"producers", form{answers: []string{"messages", "missed_singly", "watermark_after"}, may: []string{"watermark_after"}, unordered: "messages"}},
	{"claims", form{steps: []string{"action", "delay", "at", "record", "conflict"}}},
	{"cancels", form{answers: []string{"key", "fence", "cause", "refused"}}},
	{"shards", form{steps: []string{"action", "of", "at", "record"}}},
	{"chains", form{answers: []string{"messages"}, unordered: "messages"}},
	{"alerts", form{answers: []string{"msg_id", "event"}}},
	{"locks", form{answers: []string{"ask", "place", "in_way", "displaces", "woken", "next"}}},
	{"events", form{answers: []string{"takes", "slots", "due", "refused"}}},
	{"sweeps", form{answers: []string{"messages"}, unordered: "messages"}},
	{"shares", form{answers: []string{"hash", "e", "r", "of"}}},
}

// Files returns the names of the files of vectors.
func Files() (names []string) {
	for _, f := range forms {
		names = append(names, f.file)
	}
	return names
}

func formOf(file string) form {
	for _, f := range forms {
		if f.file == file {
			return f.form
		}
	}
	return form{}
}

// Cases returns the cases of the files, in order, or of all files if none is named.
func Cases(files ...string) ([]Case, error) {
	musts, err := Musts()
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, f := range forms {
		if len(files) > 0 && !slices.Contains(files, f.file) {
			continue
		}
		stored, err := read(f.file)
		if err != nil {
			return nil, err
		}
		for i, members := range stored {
			c := Case{ID: f.file + "/" + strconv.Itoa(i), File: f.file}
			if c.Ask, c.want, err = f.divide(members); err != nil {
				return nil, fmt.Errorf("read vectors %s: %w", c.ID, err)
			}
			if name, ok := members["name"]; ok {
				_ = json.Unmarshal(name, &c.Name) // the tests of the vectors check that it is a string
			}
			for _, m := range musts {
				if m.has(c, nil) {
					c.Musts = append(c.Musts, m.ID)
				}
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// members are the members of a JSON object, in the spelling of the file.
type members map[string]json.RawMessage

func read(file string) (cases []members, err error) {
	data, err := protocol.Files.ReadFile(file + ".json")
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
func readShares(data []byte) (cases []members, err error) {
	var lists map[string][]members
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

// decode reads one JSON value. Its numbers keep their spelling.
func decode(data []byte, into any) error {
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

// divide splits a case into its question and its answer.
func (f form) divide(of members) (ask, want map[string]any, err error) {
	if ask, want, err = split(of, f.answers); err != nil {
		return nil, nil, err
	}
	if slices.Contains(f.answers, "trace_id") { // names
		// A question that has no ID names the slot by its key.
		if key, ok := of["key"]; ok && of["id"] == nil {
			ask["key"] = key
		}
		if of["refused"] != nil {
			delete(want, "key")
		}
	}
	if f.steps == nil {
		return ask, want, nil
	}
	var steps []members
	if err := json.Unmarshal(of["steps"], &steps); err != nil {
		return nil, nil, err
	}
	asks, wants := make([]any, len(steps)), make([]any, len(steps))
	for i, s := range steps {
		if asks[i], wants[i], err = split(s, f.steps); err != nil {
			return nil, nil, err
		}
	}
	ask["steps"], want["steps"] = asks, wants
	return ask, want, nil
}

func split(of members, answers []string) (ask, want map[string]any, err error) {
	ask, want = map[string]any{}, map[string]any{}
	for name, value := range of {
		if !slices.Contains(answers, name) {
			ask[name] = value
			continue
		}
		var v any
		if err := decode(value, &v); err != nil {
			return nil, nil, err
		}
		want[name] = v
	}
	return ask, want, nil
}

// AnswersOf returns the answer of a whole case of the file, for tests that have whole cases.
func AnswersOf(file string, data []byte) (map[string]any, error) {
	var of members
	if err := json.Unmarshal(data, &of); err != nil {
		return nil, fmt.Errorf("read case of %s: %w", file, err)
	}
	_, want, err := formOf(file).divide(of)
	return want, err
}
