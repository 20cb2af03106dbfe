package conformance

import "slices"

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

// Sum counts the verdicts on the cases of one MUST.
type Sum struct {
	Must   Must
	Passed int
	Failed int
	Left   int
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
			switch {
			case !slices.Contains(v.Case.Musts, m.ID):
			case v.Left != "" || !m.has(v.Case, v.Without):
				s.Left++
			case v.Wrong != "":
				s.Failed++
			default:
				s.Passed++
			}
		}
		if s.Passed+s.Failed+s.Left > 0 {
			sums = append(sums, s)
		}
	}
	return sums, nil
}

// Passed reports whether the client gave the right answer.
func (v Verdict) Passed() bool { return v.Wrong == "" && v.Left == "" }
