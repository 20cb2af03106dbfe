package lab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/conformance"
	"github.com/cronce-io/cronce/internal/lab/conformance/peer"
	"github.com/cronce-io/cronce/internal/text/printable"
)

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
		Example: `  cronce conformance peer --cmd 'node clients/node/peer.js'
  cronce conformance peer --cmd 'python3 worker.py' --only claim-lost,lapsed
  cronce conformance peer --cmd 'python3 worker.py' --leave publication-unanswered,newer-zone`,
		Args: base.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(u.check(peer.Names()), base.OneOf("--leave", peer.Names(), left...)); err != nil {
				return base.Try(base.Usage(err), "cronce conformance peer --help")
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
			summary.count(r)
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
	Passed    int  `json:"passed"`
	Failed    int  `json:"failed"`
	Left      int  `json:"left"`
}

func (s *peerSummary) count(r peer.Result) {
	s.Scenarios++
	switch {
	case len(r.Broken) > 0:
		s.Failed++
	case r.Left != "":
		s.Left++
	default:
		s.Passed++
	}
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
