package conformance

import (
	"encoding/json"
	"fmt"
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

// Cases returns the cases of the files, in order, or of all files if none is named.
func Cases(files ...string) ([]Case, error) {
	musts, err := Musts()
	if err != nil {
		return nil, err
	}
	var all []Case
	for _, file := range protocol.Names() {
		if len(files) > 0 && !slices.Contains(files, file) {
			continue
		}
		stored, err := protocol.Read(file)
		if err != nil {
			return nil, err
		}
		for i, members := range stored {
			c := Case{ID: file + "/" + strconv.Itoa(i), File: file}
			if c.Ask, c.want, err = protocol.FormOf(file).Divide(members); err != nil {
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
