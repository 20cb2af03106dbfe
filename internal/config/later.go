package config

// This file knows the parts of the format that are not built yet. Their shape is
// checked, so that nonsense is called nonsense, and then they are refused: a
// file that asks for a policy must not run without it. A part that is built
// moves from here to job.go or action.go.

func (j *jobDecoder) later(v value) {
	if v.kind != broken {
		j.fail(v.at, "%s is not supported yet", v.label)
	}
}

// check calls later unless reading v reported something.
func (j *jobDecoder) check(v value, read func()) {
	before := len(j.errs)
	read()
	if len(j.errs) == before {
		j.later(v)
	}
}

func (j *jobDecoder) on(v value) {
	j.check(v, func() {
		if j.object(v, []field{{"stream", j.anyText("ORDERS")}, {"subject", j.anyText("orders.paid")}}) {
			j.needs(v, "stream", "subject")
		}
	})
}

func (j *jobDecoder) anyText(example string) func(value) {
	return func(v value) { j.text(v, example) }
}
