package python_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/jobfile/migrate/python"
)

// shown writes a value with the kinds of its parts.
func shown(v python.Value) string {
	all := func(items []python.Value) string {
		var texts []string
		for _, i := range items {
			texts = append(texts, shown(i))
		}
		return strings.Join(texts, ", ")
	}
	switch v.Kind {
	case python.Opaque:
		return fmt.Sprintf("<%d: %s>", v.Line, v.Source)
	case python.None:
		return "None"
	case python.Bool:
		return fmt.Sprint(v.Bool)
	case python.Text:
		return fmt.Sprintf("%q", v.Text)
	case python.List:
		return "[" + all(v.Items) + "]"
	case python.Dict:
		var texts []string
		for i, k := range v.Keys {
			texts = append(texts, shown(k)+": "+shown(v.Items[i]))
		}
		return "{" + strings.Join(texts, ", ") + "}"
	case python.Call:
		text := all(v.Items)
		for _, a := range v.Args {
			text += "; " + a.Name + "=" + shown(a.Value)
		}
		if v.Starred {
			text += "; *"
		}
		return v.Text + "(" + text + ")"
	}
	return v.Text
}

func TestFindReadsLiteralsAndKeepsWhatIsNone(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`x = {"a": 1, 'b': [2, -3.5, (4,)], "c": {"d": None}, }`:   `{"a": 1, "b": [2, -3.5, [4]], "c": {"d": None}}`,
		"app.conf.x = crontab(minute='*/5',\n  hour=7)":            `crontab(; minute="*/5"; hour=7)`,
		`x: dict[str, int] = {1: True, }`:                          `{1: true}`,
		`x = ("one " 'two' """ three""")`:                          `"one two three"`,
		`x = {1, 2, f(3)}`:                                         `[1, 2, f(3)]`,
		`x = r"\d" "\x41\u00e4\n"`:                                 `"\\dAä\n"`,
		`x = {"a": 60 * 5, "b": f"{y}", "c": lambda: 3, "d": 4}`:   `{"a": <1: 60 * 5>, "b": <1: f"{y}">, "c": <1: lambda: 3>, "d": 4}`,
		"x = {\n 'a': [i for i in (1, 2)],\n **more,\n 'b': z[1]}": `{"a": [<2: i for i in (1, 2)>], <3: **>: <3: more>, "b": <4: z[1]>}`,
		`x = timedelta(*a, hours=1, **b)`:                          `timedelta(; hours=1; *)`,
		`x = b"bytes"`:                                             `<1: b"bytes">`,
		`x = settings.BEAT`:                                        `settings.BEAT`,
		`f(x=[1], y=2)`:                                            `[1]`,
		`{"x": [1], "y": 2}`:                                       `[1]`,
		`x["a"] = 1_000`:                                           `1000`,
		`x = 0x10 # sixteen`:                                       `16`,
		`x = 1 if y else 2`:                                        `<1: 1 if y else 2>`,
		`x = "\N{BULLET}"`:                                         `<1: "\N{BULLET}">`,
		`x == 5; z = {"not": x}`:                                   `<1: x == 5> | <1: x}>`,
		`x.update({"a": 1})`:                                       `<1: x.update({"a": 1})>`,
		`x |= y`:                                                   `<1: x |= y>`,
		`def x(a=1): pass`:                                         ``,
		`x = ` + strings.Repeat("[", 150) + strings.Repeat("]", 150): strings.Repeat("[", 100) + "<1: " + strings.Repeat("[", 50) + strings.Repeat("]", 50) + ">" + strings.Repeat("]", 100),
	} {
		var got []string
		for _, f := range python.Parse(source).Find("x") {
			got = append(got, shown(f.Value))
		}
		if strings.Join(got, " | ") != want {
			t.Errorf("%s\n got %s\nwant %s", source, strings.Join(got, " | "), want)
		}
	}
}

func TestFindKnowsCallsDecoratorsAndLines(t *testing.T) {
	t.Parallel()
	found := python.Parse(`
sched = BlockingScheduler(timezone="UTC")

@sched.scheduled_job('cron', hour=7)
@other
def report():
    sched.add_job(report, 'interval',
        minutes=5)
X["a b"] = {}
`).Find("scheduled_job", "add_job", "X")
	if len(found) != 3 {
		t.Fatalf("%+v", found)
	}
	if f := found[0]; f.Decorates != "report" || f.Line != 4 || f.Value.Text != "sched.scheduled_job" || f.Value.Last() != "scheduled_job" {
		t.Errorf("%+v", f)
	}
	if f := found[1]; f.Decorates != "" || f.Line != 7 || shown(f.Value) != `sched.add_job(report, "interval"; minutes=5)` {
		t.Errorf("%+v, %s", f, shown(f.Value))
	}
	if f := found[2]; f.Name != "X" || f.Index == nil || f.Index.Text != "a b" || f.Line != 9 {
		t.Errorf("%+v", f)
	}
}

// Python's own ast.literal_eval gives the expected value.
func TestLiteralsAreReadAsPythonReadsThem(t *testing.T) {
	t.Parallel()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CRONCE_TEST_NO_SKIP") == "1" && !slices.Contains(strings.Fields(os.Getenv("CRONCE_TEST_WITHOUT")), "python3") {
			t.Fatal(err)
		}
		t.Skipf("needs python3: %v", err)
	}
	literals := []string{
		`{'a': (1, 2.5, -3), "b": [None, True, "x" "y"], 'c': {}}`, `"\t\\ \' \x41 ä \U0001F600 \q"`, `r'\n\'x'`, `'''a
b'''`, `[1_0, 0x1f, 0o17, 0b11, 1e3, .5, 5.]`, `"a\
b"`, `[]`, `()`, `{}`, `(1)`, `((1,),)`,
	}
	for _, literal := range literals {
		out, err := exec.Command(interpreter, "-c", "import ast,json,sys; print(json.dumps(ast.literal_eval(sys.argv[1])))", literal).Output()
		if err != nil {
			t.Fatalf("%s: %v", literal, err)
		}
		found := python.Parse("x = " + literal).Find("x")
		if len(found) != 1 {
			t.Fatalf("%s: %+v", literal, found)
		}
		got, ok := found[0].Value.JSON()
		var ours, theirs any
		if !ok || json.Unmarshal(got, &ours) != nil || json.Unmarshal(out, &theirs) != nil || fmt.Sprint(ours) != fmt.Sprint(theirs) {
			t.Errorf("%s: %s, want %s", literal, got, out)
		}
	}
}

func TestANumberThatIsTooLargeIsNoLiteral(t *testing.T) {
	t.Parallel()
	for _, v := range []string{"1e400", "-1e400", "[1, 1e400]"} {
		found := python.Parse("x = " + v).Find("x")
		if len(found) != 1 {
			t.Fatalf("%s: %+v", v, found)
		}
		if got, ok := found[0].Value.JSON(); ok {
			t.Errorf("%s is read as %s", v, got)
		}
	}
}

func FuzzFind(f *testing.F) {
	f.Add(`x = {"a": [1, (2,), {3}], "b": f(c=4, *d)} ; x["y"] = lambda: 0`)
	f.Add("@x(1)\ndef y(): '''")
	f.Fuzz(func(t *testing.T, source string) {
		began := time.Now()
		lines := strings.Count(source, "\n") + 1
		for _, found := range python.Parse(source).Find("x", "y") {
			if found.Line < 1 || found.Line > lines || found.Value.Line < 1 || found.Value.Line > lines {
				t.Fatalf("%+v in %d lines", found, lines)
			}
			if data, ok := found.Value.JSON(); ok && !json.Valid(data) {
				t.Fatalf("%s", data)
			}
		}
		if took := time.Since(began); took > time.Minute {
			t.Fatalf("it took %v", took)
		}
	})
}
