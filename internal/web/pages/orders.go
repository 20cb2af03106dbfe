package pages

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// order is the content of the page of an order.
type order struct {
	Job, Title, Verb string

	// Says is what the order will do. Ready reports whether there is something to do: only then the
	// page has the button.
	Says  []string
	Ready bool

	// Waiting reports that Says is still being computed: the page refreshes itself.
	Waiting bool

	Danger  bool
	Fields  []field
	Preview string // the method with which a button shows anew what Says, which depends on the fields; "": no button
	Back    string // the path of the page to go back to
}

type field struct {
	shell.Field
	Kind string // input, area or hidden
}

// orders lists the pages of the orders on one job.
func (s *Site) orders() []shell.Page {
	return []shell.Page{
		orderPage("trigger", starts, showTrigger, doTrigger), orderPage("pause", edits, showPause, doPause), orderPage("resume", edits, showResume, doResume),
		orderPage("backfill", starts, showBackfill, doBackfill), orderPage("release", edits, showRelease, doRelease), orderPage("remove", edits, showRemove, doRemove),
		orderPage("repair", starts, s.showRepair, s.doRepair),
	}
}

func orderPage(verb string, needs func(client.Rights) bool, show func(*shell.Request, *order) error, do func(*shell.Request, string) (string, error)) shell.Page {
	return shell.Page{
		Path: "/jobs/{job}/" + verb, Nav: "jobs", File: "order.html",
		Show: func(r *shell.Request) (any, error) {
			name := r.PathValue("job")
			o := order{Job: name, Verb: strings.ToUpper(verb[:1]) + verb[1:], Back: shell.Path("jobs", name)}
			o.Title = o.Verb + " " + name
			err := o.keep(r, show(r, &o))
			o.permit(r, needs)
			return o, err
		},
		Typed: true,
		Do: func(r *shell.Request) (string, error) {
			name := r.PathValue("job")
			to, err := do(r, name)
			if to == "" {
				to = shell.Path("jobs", name)
			}
			return to, err
		},
	}
}

// keep keeps the fields of an order that was not answered, if what the order would do cannot be read now: with
// the same key and revision, the button settles whether it was carried out.
func (o *order) keep(r *shell.Request, err error) error {
	if err == nil || r.Method != http.MethodPost || fault.Of(err) != fault.Unknown {
		return err
	}
	o.Ready, o.Preview, o.Fields = true, "", nil
	o.Says = []string{"The NATS server does not answer, so the page cannot say what the order will do. What you typed is kept."}
	for _, f := range r.Form.Typed() {
		o.Fields = append(o.Fields, field{f, "hidden"})
	}
	return nil
}

func (o *order) input(r *shell.Request, name, label, hint string) {
	o.Fields = append(o.Fields, field{r.Form.Field(name, label, hint), "input"})
}

func (o *order) hidden(r *shell.Request, name, value string) {
	r.Form.Get(name)
	o.Fields = append(o.Fields, field{shell.Field{Name: name, Value: value}, "hidden"})
}

// seen adds a hidden field with the revision of the job that the page shows. The order fails if the
// job has changed since.
func (o *order) seen(r *shell.Request, d client.Definition) {
	o.hidden(r, "seen", fmt.Sprint(d.Revision))
}

func readSeen(r *shell.Request) *uint64 {
	var n uint64
	if text := r.Form.Get("seen"); text != "" {
		if _, err := fmt.Sscan(text, &n); err != nil {
			r.Form.Wrong("seen", "%q is not a revision", text)
			return nil
		}
		return &n
	}
	return nil
}

func showTrigger(r *shell.Request, o *order) error {
	d, err := r.Client.Job(r.Context(), o.Job)
	if err != nil {
		return err
	}
	j := d.Job.WithDefaults()
	o.Ready, o.Verb = true, "Run it once"
	where := fmt.Sprintf("on one of %d nodes", len(d.Handlers))
	switch len(d.Handlers) {
	case 0:
		where = "as soon as a node has a handler for it: none has now"
	case 1:
		where = "on the node " + d.Handlers[0]
	}
	o.Says = append(o.Says, fmt.Sprintf("One run of %s starts in the queue %s, %s.", o.Job, j.Queue, where))
	if d.Paused {
		o.Says = append(o.Says, "The job is paused. That stops only its schedule: this run starts anyway.")
	}
	key := r.Form.Get("key")
	if key == "" {
		key = rand.Text() // an order that is sent twice is then one run
	}
	loc := r.Prefs.In(j.Timezone)
	if at := r.Form.Time("at", loc); !at.IsZero() {
		o.Says = append(o.Says, startWords(at, loc, time.Now()))
	}
	o.Preview = "post" // a payload is too long for an address
	o.Fields = append(o.Fields, field{r.Form.Field("payload", "Payload", "JSON for the handler. Empty: the job's own payload."), "area"})
	o.input(r, "at", "When", "Empty: at once. Else a time in the zone "+loc.String()+", like 2026-11-21 07:00.")
	o.hidden(r, "key", key)
	return nil
}

// startWords says when a run that is ordered for at starts.
func startWords(at time.Time, loc *time.Location, now time.Time) string {
	text := at.In(loc).Format("Mon 2 Jan 2006 15:04:05 MST")
	if loc != time.UTC {
		text += ", which is " + at.UTC().Format("2006-01-02T15:04:05Z")
	}
	if !at.After(now) {
		return "It starts at once, since the time has passed: " + text + "."
	}
	return "It starts at " + text + ": " + shell.Relative(at, now) + "."
}

func doTrigger(r *shell.Request, name string) (string, error) {
	u, err := r.Client.Next(r.Context(), name)
	if err != nil {
		return "", err
	}
	loc := r.Prefs.In(u.Job.WithDefaults().Timezone)
	o := client.TriggerOptions{Key: r.Form.Get("key"), Payload: r.Form.JSON("payload"), At: r.Form.Time("at", loc)}
	if n := len(o.Payload); n > job.MaxPayload {
		r.Form.Wrong("payload", "it has %d bytes: at most %d are allowed", n, job.MaxPayload)
	}
	if o.Key != "" {
		if err := job.ValidateToken(o.Key); err != nil {
			r.Form.Wrong("key", "%v", err)
		}
	}
	if !r.Form.Complete() {
		return "", shell.ErrField
	}
	run, err := r.Client.Trigger(r.Context(), name, o)
	if err != nil {
		return "", err
	}
	if !run.New {
		err = sameRun(r, run, o, u.Now, loc)
	}
	return shell.Path("slots", run.ID()), err
}

// sameRun returns an error if an earlier order of the run had another payload or another time, both of which
// decide. The key is then a new one, so that the next order is one more run.
func sameRun(r *shell.Request, run client.Run, o client.TriggerOptions, now time.Time, loc *time.Location) error {
	if len(o.Payload) > 0 {
		has, err := run.Payload(r.Context())
		if err != nil {
			return err
		}
		if !codec.SameJSON(has, o.Payload) {
			r.Form.Wrong("payload", "the run %s was triggered before with another payload. Press the button again for one more run, with this payload", run.ID())
		}
	}
	if later := o.At.After(now); later && !run.Due.Equal(o.At) || !later && run.Due.After(now) {
		due := "to start at once"
		if !run.Due.IsZero() {
			due = "for " + run.Due.In(loc).Format("Mon 2 Jan 2006 15:04:05 MST")
		}
		r.Form.Wrong("at", "the run %s was triggered before, %s. Press the button again for one more run, at this time", run.ID(), due)
	}
	if r.Form.OK() {
		return nil
	}
	r.Form.Set("key", rand.Text())
	return shell.ErrField
}

func showPause(r *shell.Request, o *order) error {
	u, err := r.Client.Next(r.Context(), o.Job)
	if err != nil {
		return err
	}
	if u.Paused {
		o.Says = append(o.Says, "The job is already paused, by "+u.By+".")
		return nil
	}
	o.Ready = true
	begins := "none of its slots is published until it is resumed"
	switch {
	case u.Job.On.Stream != "":
		begins = "the messages of stream " + u.Job.On.Stream + " wait there until it is resumed"
	case len(u.Job.After) > 0:
		begins = "each slot whose turn comes is recorded as missed, until it is resumed"
	}
	o.Says = append(o.Says, "From now on, "+begins+". Slots that were published before still run, and it can be triggered.")
	var next []string
	loc := r.Prefs.In(u.Job.WithDefaults().Timezone)
	for at := range u.Slots(u.Now, time.Time{}, 3) {
		next = append(next, at.In(loc).Format("Mon 2 Jan 15:04:05 MST"))
	}
	if len(next) > 0 {
		o.Says = append(o.Says, "The first slots that will be missed: "+strings.Join(next, ", ")+". Its catch-up policy decides which of them run when it is resumed.")
	}
	return nil
}

func doPause(r *shell.Request, name string) (string, error) {
	if !r.Form.Complete() {
		return "", shell.ErrField
	}
	_, err := r.Client.Pause(r.Context(), name)
	return "", err
}

func resumeWords(d client.Resumption) string {
	if !d.Paused {
		return "it is not paused."
	}
	policy := d.Job.WithDefaults().CatchUp.Policy
	switch {
	case d.Job.On.Stream != "":
		return "the messages of stream " + d.Job.On.Stream + " wait there, and will run."
	case len(d.Job.After) > 0:
		return "each slot whose turn came during the pause is recorded as missed, and will not run. Its next slots run."
	case d.Missed == 0:
		return "no slot was missed during the pause. Its next slots run as planned."
	case d.Missed == 1:
		return fmt.Sprintf("1 slot was missed since %s; policy %s: %d will run.", d.Since.UTC().Format("2006-01-02 15:04 UTC"), policy, d.Runs)
	}
	return fmt.Sprintf("%d slots were missed since %s; policy %s: %d will run.", d.Missed, d.Since.UTC().Format("2006-01-02 15:04 UTC"), policy, d.Runs)
}

func showResume(r *shell.Request, o *order) error {
	d, err := r.Client.Resume(r.Context(), o.Job, client.ResumeOptions{DryRun: true})
	if err != nil {
		return err
	}
	text := resumeWords(d)
	o.Says, o.Ready = append(o.Says, strings.ToUpper(text[:1])+text[1:]), d.Paused
	if d.Paused {
		o.Says = append(o.Says, "It was paused by "+d.By+".")
	}
	o.seen(r, d.Definition)
	return nil
}

func doResume(r *shell.Request, name string) (string, error) {
	seen := readSeen(r)
	if !r.Form.Complete() {
		return "", shell.ErrField
	}
	_, err := r.Client.Resume(r.Context(), name, client.ResumeOptions{Seen: seen})
	return "", err
}

func showRelease(r *shell.Request, o *order) error {
	d, err := r.Client.Next(r.Context(), o.Job)
	if err != nil {
		return err
	}
	if d.Owner != "operator" {
		o.Says = append(o.Says, fmt.Sprintf("No operator owns the job: its owner is %q. There is nothing to release.", d.Owner))
		return nil
	}
	o.Ready = true
	o.Says = append(o.Says, "An operator has edited the job, last "+d.By+". The edit stays until a node with another definition of the job in its file or code starts or reloads its file. Then that definition replaces the edit.")
	return nil
}

func doRelease(r *shell.Request, name string) (string, error) {
	if !r.Form.Complete() {
		return "", shell.ErrField
	}
	_, err := r.Client.Release(r.Context(), name)
	return "", err
}

func showRemove(r *shell.Request, o *order) error {
	d, err := r.Client.Job(r.Context(), o.Job)
	if err != nil {
		return err
	}
	o.Ready, o.Danger = true, true
	o.Says = append(o.Says, "The job is removed from the registry: no more slots of it are published. The records of its slots stay as long as the ledger keeps records.")
	if d.Owner == "file" || d.Owner == "code" {
		o.Says = append(o.Says, "A node whose "+d.Owner+" has the job creates it again when it starts. To stop the job, pause it, or remove it from the "+d.Owner+" first.")
	}
	o.seen(r, d.Definition)
	return nil
}

func doRemove(r *shell.Request, name string) (string, error) {
	seen := readSeen(r)
	if !r.Form.Complete() {
		return "", shell.ErrField
	}
	return "jobs", r.Client.Remove(r.Context(), name, client.RemoveOptions{Seen: seen})
}

// showBackfill says how many slots a range has, before any is published.
func showBackfill(r *shell.Request, o *order) error {
	u, err := r.Client.Next(r.Context(), o.Job)
	if err != nil {
		return err
	}
	loc := r.Prefs.In(u.Job.WithDefaults().Timezone)
	from, to := r.Form.Time("from", loc), r.Form.Time("to", loc)
	if to.IsZero() {
		to = u.Now
	}
	switch {
	case !r.Form.OK():
	case from.IsZero():
		o.Says = append(o.Says, "A backfill publishes the slots of a past range that were never published. Slots that wait or have a record are left out: retry those one by one.")
	case to.After(u.Now):
		r.Form.Wrong("to", "it is in the future: slots that are not due yet need no backfill")
	case !from.Before(to):
		r.Form.Wrong("from", "it is not before the end of the range")
	default:
		err = o.countBackfill(r, u, from, to)
	}
	hint := "A time in the zone " + loc.String() + ", like " + u.Now.In(loc).Format("2006-01-02 15:04") + "."
	o.input(r, "from", "From", hint)
	o.input(r, "to", "To, not included", hint+" Empty: now.")
	o.Preview = "get"
	return err
}

// countBackfill says how many slots of the range will be published.
func (o *order) countBackfill(r *shell.Request, u client.Upcoming, from, to time.Time) error {
	states, err := new(account).read(r.Context(), r.Client, accountKey{Job: o.Job, From: from, To: to})
	if err != nil {
		return err
	}
	slots, known, counts := 0, 0, map[job.State]int{}
	for at := range u.Planned(from, to) {
		if slots++; slots > maxSlots {
			r.Form.Wrong("from", "the range has more than %d slots: choose a shorter one", maxSlots)
			return nil
		}
		if state, ok := states[job.NewSlot(o.Job, at).ID()]; ok {
			known++
			counts[state]++
		}
	}
	o.Says = append(o.Says, fmt.Sprintf("The range has %s. %s to be published.", plural(slots, "slot"), are(slots-known)))
	if known > 0 {
		o.Says = append(o.Says, "Left out, since they wait or have a record: "+countWords(counts)+".")
	}
	o.Ready = slots > known
	return nil
}

func doBackfill(r *shell.Request, name string) (string, error) {
	u, err := r.Client.Next(r.Context(), name)
	if err != nil {
		return "", err
	}
	loc := r.Prefs.In(u.Job.WithDefaults().Timezone)
	o := client.BackfillOptions{From: r.Form.Time("from", loc), To: r.Form.Time("to", loc), Rate: client.MaxRate}
	if o.From.IsZero() && r.Form.OK() {
		r.Form.Wrong("from", "it is missing: the range needs a beginning")
	}
	if !r.Form.Complete() {
		return "", shell.ErrField
	}
	_, err = r.Client.Backfill(r.Context(), name, o, nil)
	return "", err
}

// showRepair and doRepair are the page of a repair of one job. repairPage is that of the fleet.
func (s *Site) showRepair(r *shell.Request, o *order) error {
	key := readRange(r)
	key.Job = o.Job
	o.hidden(r, "from", r.Form.Get("from"))
	o.hidden(r, "to", r.Form.Get("to"))
	return s.sayRepair(r, key, o)
}

func (s *Site) doRepair(r *shell.Request, name string) (string, error) {
	key := readRange(r)
	key.Job = name
	if !r.Form.Complete() {
		return "", shell.ErrField
	}
	return "", s.repairNow(r, key)
}
