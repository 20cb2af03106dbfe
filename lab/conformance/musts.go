package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/docs/protocol"
)

// Must is a numbered MUST of docs/protocol.md.
type Must struct {
	ID  string `json:"id"`
	Say string `json:"say"` // the rule in one line

	// Vectors are files of docs/protocol, without ".json": all cases of the file. "file: name"
	// is one case, and "file.member" are all cases, for that member of the answer.
	Vectors []string `json:"vectors,omitempty"`

	// Peer are scenarios of "cronce conformance peer". Torture are rules of "cronce torture".
	Peer    []string `json:"peer,omitempty"`
	Torture []string `json:"torture,omitempty"`
}

// Musts returns the MUSTs in the order of the page.
func Musts() ([]Must, error) {
	data, err := protocol.Files.ReadFile("musts.json")
	if err != nil {
		return nil, fmt.Errorf("read musts: %w", err)
	}
	var all []Must
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		return nil, fmt.Errorf("read musts.json: %w", err)
	}
	return all, nil
}

// has reports whether the case tests the MUST with other members than those in without.
func (m Must) has(c Case, without []string) bool {
	for _, v := range m.Vectors {
		file, name, one := strings.Cut(v, ": ")
		file, member, _ := strings.Cut(file, ".")
		if file == c.File && (!one || name == c.Name) && !slices.Contains(without, member) {
			return true
		}
	}
	return false
}

// Verdict is the result of one case.
type Verdict struct {
	Case  Case
	Wrong string // the first difference; empty: none
	Left  string // why the client leaves it to other programs; empty: it has answered

	// Without are the members of the answer that the client does not compute.
	Without []string
}

// String returns the ID of the case, with its name if it has one.
func (c Case) String() string {
	if c.Name == "" {
		return c.ID
	}
	return c.ID + " (" + c.Name + ")"
}

// Tally counts cases, or scenarios.
type Tally struct {
	Passed int `json:"passed"`
	Failed int `json:"failed"`
	Left   int `json:"left"` // to other programs
}

// Add counts one.
func (t *Tally) Add(failed, left bool) {
	switch {
	case failed:
		t.Failed++
	case left:
		t.Left++
	default:
		t.Passed++
	}
}

// Sum counts the verdicts on the cases of one MUST.
type Sum struct {
	Must Must
	Tally
}

// Summary counts verdicts by MUST, in the order of the page. It leaves out a MUST without a case.
func Summary(verdicts []Verdict) ([]Sum, error) {
	musts, err := Musts()
	if err != nil {
		return nil, err
	}
	var sums []Sum
	for _, m := range musts {
		s := Sum{Must: m}
		for _, v := range verdicts {
			if slices.Contains(v.Case.Musts, m.ID) {
				tested := m.has(v.Case, v.Without)
				s.Add(tested && v.Wrong != "", !tested || v.Left != "")
			}
		}
		if s.Tally != (Tally{}) {
			sums = append(sums, s)
		}
	}
	return sums, nil
}
