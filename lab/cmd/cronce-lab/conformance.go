package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/docs/protocol"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/lab/conformance"
	"github.com/cronce-io/cronce/lab/conformance/peer"
)

const conformanceLong = `Conformance checks whether your own client of the wire format, in any language, follows
docs/protocol.md. Each MUST of that page has a number, which the reports name.

docs/conformance.md says what your command gets and what it must answer.`

// newConformanceCommand groups the checks of clients in other languages.
func newConformanceCommand(a *base.App) *cobra.Command {
	cmd := base.NewGroup("conformance", "Check your own client of the wire format",
		newPeerCommand(a),
		newVectorsCommand(a),
	)
	cmd.Long = conformanceLong
	return cmd
}

// underTest holds the flags that select the client and what is checked.
type underTest struct {
	command string
	only    []string
	timeout time.Duration
}

func (u *underTest) add(cmd *cobra.Command, what string, all []string, timeout string) {
	flags := cmd.Flags()
	flags.StringVar(&u.command, "cmd", "", "`command` line that starts your client, for the shell")
	flags.StringSliceVar(&u.only, "only", nil, what)
	flags.DurationVar(&u.timeout, "timeout", 30*time.Second, timeout)
	base.Complete(cmd, "only", all...)
}

// check validates the flags before anything is started.
func (u *underTest) check(all []string) error {
	if strings.TrimSpace(u.command) == "" {
		return errors.New(`no --cmd: want the command that starts your client, such as --cmd "python3 client.py"`)
	}
	if err := base.OneOf("--only", all, u.only...); err != nil {
		return err
	}
	if u.timeout < time.Second {
		return fmt.Errorf("invalid --timeout %v: must be at least 1s", u.timeout)
	}
	return nil
}

const vectorsLong = `Vectors asks your client about every test vector of docs/protocol.md, and judges its
answers. It needs no server. It starts your command, writes a question a line to its
standard input, and closes that; your command writes an answer a line to its standard
output, in any order, and then ends:

  {"case":"names/0","about":"names","ask":{"id":"report:2026-11-21T07:00:00Z"}}
  {"case":"names/0","answer":{"key":"report.20261121T070000Z","job":"report",...}}

A client that leaves something to others, as section 15 of the page allows, says so:

  {"case":"sweeps/0","leave":"this client does not sweep"}

An absent member of an answer means no, none or 0. A nonce, and the text of an error, are
your client's own. Section 17 of the page has the members of each file.

The exit status is 3 if a case failed, and 1 if the command cannot be started, ends early,
answers nothing for --timeout, or writes anything else to its standard output.

With -o json, one line for each case that failed, one for each MUST, and a last line, the
only one with ok:

  {"case":"names/4","name":"","musts":["N-1"],"wrong":"refused is missing: want \"invalid\""}
  {"must":"N-1","rule":"refuse every other spelling of an ID and a key","passed":42,"failed":1,"left":0}
  {"ok":false,"cases":458,"passed":457,"failed":1,"left":0}`

func newVectorsCommand(a *base.App) *cobra.Command {
	var u underTest
	cmd := &cobra.Command{
		Use:   "vectors --cmd COMMAND",
		Short: "Ask your client about the test vectors, without a server",
		Long:  vectorsLong,
		Example: `  cronce-lab conformance vectors --cmd 'python3 client.py'
  cronce-lab conformance vectors --cmd 'node clients/node/vectors.js' --only names,claims -o json`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := u.check(protocol.Names()); err != nil {
				return base.Try(base.Usage(err), "cronce-lab conformance vectors --help")
			}
			return runVectors(cmd.Context(), a, u)
		},
	}
	u.add(cmd, "`files` of vectors to ask about, of "+strings.Join(protocol.Names(), ", ")+" (default all)", protocol.Names(), "longest wait for the next answer")
	return cmd
}

func runVectors(ctx context.Context, a *base.App, u underTest) error {
	cases, err := conformance.Cases(u.only...)
	if err != nil {
		return err
	}
	var verdicts []conformance.Verdict
	broken := conformance.Ask(ctx, conformance.Command{Line: u.command}, cases, u.timeout, func(v conformance.Verdict) { verdicts = append(verdicts, v) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := printVerdicts(a, len(cases), verdicts, broken != nil); err != nil {
		return err
	}
	switch sum := tallyOf(verdicts); {
	case broken != nil:
		return broken
	case sum.Failed > 0:
		return fmt.Errorf("%w: %d of %d cases failed", base.ErrFound, sum.Failed, len(cases))
	case sum.Passed == 0:
		return fmt.Errorf("%w: the command leaves all %d cases to others, so nothing was checked", base.ErrFound, len(cases))
	}
	return nil
}

func tallyOf(verdicts []conformance.Verdict) (sum conformance.Tally) {
	for _, v := range verdicts {
		sum.Add(v.Wrong != "", v.Left != "")
	}
	return sum
}

// The lines of the JSON output.
type (
	caseLine struct {
		Case  string   `json:"case"`
		Name  string   `json:"name"`
		Musts []string `json:"musts"`
		Wrong string   `json:"wrong"`
	}
	mustLine struct {
		Must string `json:"must"`
		Rule string `json:"rule"`
		conformance.Tally
	}
	summaryLine struct {
		OK    bool `json:"ok"`
		Cases int  `json:"cases"`
		conformance.Tally
	}
)

func printVerdicts(a *base.App, asked int, verdicts []conformance.Verdict, broken bool) error {
	musts, err := conformance.Summary(verdicts)
	if err != nil {
		return err
	}
	summary := summaryLine{Cases: asked, Tally: tallyOf(verdicts)}
	summary.OK = !broken && summary.Failed == 0 && summary.Passed > 0
	failed := slices.DeleteFunc(slices.Clone(verdicts), func(v conformance.Verdict) bool { return v.Wrong == "" })
	if a.Output == base.OutputJSON {
		lines := codec.Map(failed, func(v conformance.Verdict) any { return caseLine{v.Case.ID, v.Case.Name, v.Case.Musts, v.Wrong} })
		for _, m := range musts {
			lines = append(lines, mustLine{m.Must.ID, m.Must.Say, m.Tally})
		}
		return base.PrintLines(a, slices.Values(append(lines, summary)))
	}
	for _, v := range failed {
		fmt.Fprintf(a.Stdout, "FAILED  %s  [%s]\n  %s\n", v.Case, strings.Join(v.Case.Musts, " "), v.Wrong)
	}
	t := base.NewTable(a.Stdout)
	fmt.Fprintln(t, "MUST\tPASSED\tFAILED\tLEFT\tRULE")
	for _, m := range musts {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", m.Must.ID, m.Passed, m.Failed, m.Left, m.Must.Say)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "%d cases: %d passed, %d failed, %d left to others\n", asked, summary.Passed, summary.Failed, summary.Left)
	return err
}

const peerLong = `Peer plays the other node of a fleet, and lets your client meet what is rare in a real one:
lost answers, slow or dead owners, values of newer programs, wrong clocks. Each scenario
has an embedded server of its own, a namespace, and a process of your client, which
reaches the server through this program. It takes one to two minutes.

Your command takes part in the fleet until it gets a TERM. Its environment says how:

  CRONCE_UNDER_TEST_SERVER           URL of the server
  CRONCE_UNDER_TEST_NAMESPACE        namespace, which exists
  CRONCE_UNDER_TEST_NAME             how its node's name begins
  CRONCE_UNDER_TEST_QUEUES           queues to work on, separated by commas
  CRONCE_UNDER_TEST_JOBS             jobs that it has handlers for, separated by commas
  CRONCE_UNDER_TEST_PRODUCE          1: it produces too
  CRONCE_UNDER_TEST_CLOCK_OFFSET_MS  milliseconds that it adds to its own clock
  CRONCE_UNDER_TEST_RECORD           file to which its handlers append lines
  CRONCE_UNDER_TEST_TRIGGER          run to trigger, if your client can: docs/conformance.md
  CRONCE_UNDER_TEST_TRIGGER_LATER    the same, for an instant
  CRONCE_UNDER_TEST_TRIGGER_LARGE    the same, with a payload of this many bytes

A handler does what the payload says, {"ms": how long it works}, or nothing if that is
empty. It appends a line when it starts, when its context ends before it returns
("cancel"), and when it ends:

  {"what":"start","slot":"work:@one","attempt":1,"fence":17}

The exit status is 3 if the client broke a MUST, and 1 if the command cannot be started.

With -o json, one line for each scenario, and a last line, the only one with ok:

  {"scenario":"twice","musts":["C-1","C-9"],"says":"...","result":"failed","took_ms":2310,
   "broken":[{"must":"C-1","detail":"..."}],"story":["..."]}
  {"ok":false,"scenarios":33,"passed":32,"failed":1,"left":0}`

func newPeerCommand(a *base.App) *cobra.Command {
	var u underTest
	var left []string
	cmd := &cobra.Command{
		Use:   "peer --cmd COMMAND",
		Short: "Let your running client meet what is rare in a fleet",
		Long:  peerLong,
		Example: `  cronce-lab conformance peer --cmd 'node clients/node/peer.js'
  cronce-lab conformance peer --cmd 'python3 worker.py' --only claim-lost,lapsed
  cronce-lab conformance peer --cmd 'python3 worker.py' --leave publication-unanswered,newer-zone`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(u.check(peer.Names()), base.OneOf("--leave", peer.Names(), left...)); err != nil {
				return base.Try(base.Usage(err), "cronce-lab conformance peer --help")
			}
			return runPeer(cmd.Context(), a, u, left)
		},
	}
	u.add(cmd, "`scenarios` to play (default all; the error for a wrong name lists them)", peer.Names(), "longest time that one scenario may take")
	u.timeout = 3 * time.Minute
	cmd.Flags().Lookup("timeout").DefValue = "3m0s"
	cmd.Flags().StringSliceVar(&left, "leave", nil, "`scenarios` about what your client leaves to others")
	base.Complete(cmd, "leave", peer.Names()...)
	return cmd
}

func runPeer(ctx context.Context, a *base.App, u underTest, left []string) error {
	var play []peer.Scenario
	var summary peerSummary
	for _, s := range peer.Scenarios() {
		switch {
		case len(u.only) > 0 && !slices.Contains(u.only, s.Name):
		case slices.Contains(left, s.Name):
			summary.Scenarios++
			summary.Left++
		default:
			play = append(play, s)
		}
	}
	var printErr error
	err := peer.Run(ctx, peer.Config{
		Command: conformance.Command{Line: u.command}, Scenarios: play, AtOnce: 8, Longest: u.timeout,
		Result: func(r peer.Result) {
			summary.Scenarios++
			summary.Add(len(r.Broken) > 0, r.Left != "")
			printErr = cmp.Or(printErr, printResult(a, r))
		},
	})
	if err = cmp.Or(err, printErr); err != nil {
		return err
	}
	summary.OK = summary.Failed == 0 && summary.Passed > 0
	err = a.Print(summary, "%s: %d passed, %d failed, %d left to others\n", base.Plural(summary.Scenarios, "scenario"), summary.Passed, summary.Failed, summary.Left)
	switch {
	case err != nil:
		return err
	case summary.Failed > 0:
		return fmt.Errorf("%w: %d of %d scenarios failed", base.ErrFound, summary.Failed, summary.Scenarios)
	case summary.Passed == 0:
		return fmt.Errorf("%w: all scenarios are left to others, so nothing was checked", base.ErrFound)
	}
	return nil
}

type peerSummary struct {
	OK        bool `json:"ok"`
	Scenarios int  `json:"scenarios"`
	conformance.Tally
}

type peerLine struct {
	Scenario string       `json:"scenario"`
	Musts    []string     `json:"musts"`
	Says     string       `json:"says"`
	Result   string       `json:"result"`
	Took     int64        `json:"took_ms"`
	Why      string       `json:"why,omitempty"`
	Broken   []peer.Break `json:"broken,omitempty"`
	Story    []string     `json:"story,omitempty"`
}

func printResult(a *base.App, r peer.Result) error {
	l := peerLine{Scenario: r.Scenario.Name, Musts: r.Scenario.Musts, Says: r.Scenario.Says, Result: "passed", Took: r.Took.Milliseconds(), Why: r.Left, Broken: r.Broken, Story: r.Story}
	switch {
	case len(r.Broken) > 0:
		l.Result = "failed"
	case r.Left != "":
		l.Result = "left"
	}
	if a.Output == base.OutputJSON {
		return a.PrintJSON(l)
	}
	_, err := fmt.Fprintf(a.Stdout, "%-7s %-23s %-20s %s\n", strings.ToUpper(l.Result), l.Scenario, strings.Join(l.Musts, " "), cmp.Or(l.Why, l.Says))
	for _, b := range r.Broken {
		fmt.Fprintf(a.Stdout, "  %s  %s\n", b.Must, printable.Clip(b.Detail, 1000))
	}
	for _, line := range r.Story {
		fmt.Fprintf(a.Stdout, "    %s\n", printable.Clip(line, 400))
	}
	return err
}
