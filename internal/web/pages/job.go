package pages

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/schedule/words"
	"github.com/cronce-io/cronce/internal/web/pages/board"
	"github.com/cronce-io/cronce/internal/web/pages/preview"
	"github.com/cronce-io/cronce/internal/web/pages/shell"
	"github.com/cronce-io/cronce/job"
)

// jobPage is what the page of a job shows.
type jobPage struct {
	client.JobDetails
	Zone    string // of the schedule
	Words   string // the schedule
	Fields  []client.Field
	Failing bool
	Span    span
	Account board.Result[account]
	Charts  []dots
	Coming  []coming
	Change  *clockChange
	Legend  []choice
	Orders  []job.Event // the newest ones, the newest first
}

// coming is a coming slot. If the clock changes before it, Change says how.
type coming struct {
	At     time.Time
	Change string
}

// span is the chosen range.
type span struct {
	Name           string // day, week or month
	From, To       time.Time
	Label          string
	Previous, Next string // the dates for the parameter "at"; Next is empty at the end
	Calendar       bool
}

var spans = []choice{{"day", "Day"}, {"week", "Week"}, {"month", "Month"}}

func (s *Site) job() shell.Page {
	return shell.Page{Path: "/jobs/{job}", Nav: "jobs", File: "job.html", Show: func(r *shell.Request) (any, error) {
		name := r.PathValue("job")
		chosen := r.Form.One("range", "", "day", "week", "month")
		day := r.Form.Get("at")
		d, err := r.Client.Job(r.Context(), name)
		if err != nil {
			return nil, err
		}
		p := jobPage{JobDetails: d, Legend: legend}
		if d.Broken != nil {
			return p, nil
		}
		j := d.Job.WithDefaults()
		p.Zone, p.Words = j.Timezone, words.Of(name, j.Plan())
		if p.Fields, err = client.Describe(d.Job); err != nil {
			return nil, err
		}
		u, err := r.Client.Next(r.Context(), name)
		if err != nil {
			return nil, err
		}
		loc := r.Prefs.In(p.Zone)
		if p.Span, err = newSpan(chosen, day, u, loc); err != nil {
			r.Form.Wrong("at", "%v", err)
			if p.Span, err = newSpan(chosen, "", u, loc); err != nil {
				return nil, err
			}
		}
		p.Coming, p.Change = comingSlots(u)
		if p.Orders, err = newestOrders(r, name, u.Now); err != nil {
			return nil, err
		}
		p.Account = s.account(r, name, p.Span, loc)
		p.Charts = []dots{newDots("How long each run took", p.Account.Value.Took), newDots("How late each slot started", p.Account.Value.Late)}
		_, p.Failing = board.Job{Recent: codec.Map(p.Last, board.NewRun)}.Failing()
		return p, nil
	}}
}

const (
	ordersShown = 10
	ordersRead  = 2000
)

// newestOrders returns the newest orders on a job. The broker lists them from the oldest on, and there
// may be many, if a service triggers the job. So newestOrders tries shorter times first. If a longer
// time has too many, it returns only those of the shorter one.
func newestOrders(r *shell.Request, name string, now time.Time) (newest []job.Event, err error) {
	for _, since := range []time.Time{now.Add(-time.Minute), now.Add(-time.Hour), now.AddDate(0, 0, -1), {}} {
		list, err := ordersSince(r, name, since)
		for n := 0; n < 4 && err == nil && len(newest) == 0 && len(list) == ordersRead; n++ {
			list, err = ordersSince(r, name, list[ordersRead-1].Time)
		}
		if err != nil {
			return nil, err
		}
		if len(list) == ordersRead && len(newest) > 0 {
			break
		}
		if newest = list; len(list) >= ordersShown {
			break
		}
	}
	newest = newest[max(0, len(newest)-ordersShown):]
	slices.Reverse(newest)
	return newest, nil
}

// ordersSince returns the oldest ordersRead orders on a job that were carried out at since or later.
func ordersSince(r *shell.Request, name string, since time.Time) (list []job.Event, err error) {
	for e, err := range r.Client.Orders(r.Context(), name, since) {
		switch {
		case exchange.IsUnreadable(err):
			continue // one event cannot be read
		case err != nil:
			return nil, err
		}
		if list = append(list, e); len(list) == ordersRead {
			break
		}
	}
	return list, nil
}

// Spans are the ranges to choose from.
func (p jobPage) Spans() []choice { return spans }

// Weekdays are the column heads of a calendar.
func (p jobPage) Weekdays() []string {
	return []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}
}

// accountPatience is how long a page waits for an account. If the account is not ready by then, the
// page is sent without it, and the browser refreshes that part.
const accountPatience = 700 * time.Millisecond

func (s *Site) account(r *shell.Request, name string, sp span, loc *time.Location) board.Result[account] {
	k := accountKey{name, sp.From, sp.To, loc.String()}
	return s.accounts.Get(r.Context(), k, plans.Later(r.News, time.Now().Add(-2*time.Second)), accountPatience, func(ctx context.Context) (account, error) {
		return newAccount(ctx, r.Client, k, sp.Calendar, loc)
	})
}

// newSpan returns the chosen range: the one around a day, or without a day the one that ends now.
// Without a choice, it is a day if the job has eight slots in the next day, else a week if it has
// eight in the next week, else a month.
func newSpan(name, day string, u client.Upcoming, loc *time.Location) (span, error) {
	now := u.Now.In(loc)
	at := now
	if day != "" {
		var err error
		if at, err = time.ParseInLocation(time.DateOnly, day, loc); err != nil || at.Year() < 1970 || at.Year() > 9000 {
			return span{}, fmt.Errorf("%.40q is not a day: want one like %s", day, now.Format(time.DateOnly))
		}
	}
	s := span{Name: name}
	if name == "" {
		s.Name = "month"
		for _, try := range []struct {
			name  string
			lasts time.Duration
		}{{"day", 24 * time.Hour}, {"week", 7 * 24 * time.Hour}} {
			n := 0
			for range u.Slots(u.Now, u.Now.Add(try.lasts), 8) {
				n++
			}
			if n == 8 {
				s.Name = try.name
				break
			}
		}
	}
	s.Calendar = s.Name == "month"
	if day == "" {
		s.untilNow(now)
		return s, nil
	}
	midnight := func(d int) time.Time { return time.Date(at.Year(), at.Month(), at.Day()+d, 0, 0, 0, 0, loc) }
	switch s.Name {
	case "day":
		s.From, s.To = midnight(0), midnight(1)
		s.Label = s.From.Format("Monday, 2 January 2006")
	case "week":
		monday := -(int(at.Weekday()) + 6) % 7
		s.From, s.To = midnight(monday), midnight(monday+7)
		s.Label = s.From.Format("2 January") + " to " + midnight(monday+6).Format("2 January 2006")
	default:
		s.From = time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, loc)
		s.To = time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, loc)
		s.Label = s.From.Format("January 2006")
	}
	s.Previous = s.From.AddDate(0, 0, -1).Format(time.DateOnly)
	if s.To.Before(now.AddDate(0, 2, 0)) {
		s.Next = s.To.Format(time.DateOnly)
	}
	return s, nil
}

// untilNow sets a range that ends with the current hour, day or week. So shortly after midnight, the
// range still has the slots of the evening.
func (s *span) untilNow(now time.Time) {
	date := func(d, hour int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()+d, hour, 0, 0, 0, now.Location())
	}
	switch s.Name {
	case "day":
		s.From, s.To, s.Label = date(-1, now.Hour()+1), date(0, now.Hour()+1), "Last 24 hours"
	case "week":
		s.From, s.To, s.Label = date(-6, 0), date(1, 0), "Last seven days"
	default:
		monday := -(int(now.Weekday()) + 6) % 7
		s.From, s.To, s.Label = date(monday-28, 0), date(monday+7, 0), "Last five weeks"
	}
	s.Previous, s.Next = s.From.Format(time.DateOnly), now.Format(time.DateOnly)
}

const (
	comingShown = 8

	// changeAhead is how far ahead a clock change is shown.
	changeAhead = 200 * 24 * time.Hour
)

// clockChange is the next clock change in the job's zone, and the slots around it.
type clockChange struct {
	Text    string
	Slots   []time.Time
	Gap     string // what the job's dst_gap does, if the clock goes forward
	Overlap string // what its dst_overlap does, if it goes back
	Forward bool
}

// comingSlots returns the next slots and the next clock change in the job's zone.
func comingSlots(u client.Upcoming) (slots []coming, change *clockChange) {
	own := u.Location()
	before := u.Now
	for at := range u.Slots(u.Now, time.Time{}, comingShown) {
		c := coming{At: at}
		if at.Sub(before) < changeAhead {
			if text, _, _, ok := nextChange(before, at, own); ok {
				c.Change = text
			}
		}
		slots = append(slots, c)
		before = at
	}
	text, at, forward, ok := nextChange(u.Now, u.Now.Add(changeAhead), own)
	if !ok || len(slots) == 0 {
		return slots, nil
	}
	j := u.Job.WithDefaults()
	change = &clockChange{Text: text, Forward: forward, Gap: string(j.DSTGap), Overlap: string(j.DSTOverlap)}
	for slot := range u.Slots(at.Add(-12*time.Hour), at.Add(12*time.Hour), 6) {
		change.Slots = append(change.Slots, slot)
	}
	return slots, change
}

// nextChange returns the first clock change after from, up to until.
func nextChange(from, until time.Time, loc *time.Location) (text string, at time.Time, forward, ok bool) {
	at = preview.Bound(from.In(loc))
	var before, after int
	for ; ; at = preview.Bound(at) {
		if at.IsZero() || at.After(until) {
			return "", at, false, false
		}
		_, before = at.Add(-time.Second).Zone()
		if _, after = at.Zone(); before != after {
			break // else only the name of the zone changes
		}
	}
	way, by := "forward", time.Duration(after-before)*time.Second
	if forward = by > 0; !forward {
		way = "back"
	}
	wall := at.UTC().Add(time.Duration(before) * time.Second)
	return fmt.Sprintf("On %s the clock in %s goes %s by %s, from %s to %s", wall.Format("Monday, 2 January 2006"), loc, way, shell.Span(by.Abs()),
		wall.Format("15:04"), wall.Add(by).Format("15:04")), at, forward, true
}

// legend explains the cells of the strip.
var legend = []choice{
	{"succeeded", "succeeded"}, {"failed", "failed"}, {"hole", "not accounted for"}, {"missed", "missed"}, {"skipped", "skipped"},
	{"running", "running"}, {"coming", "to come"}, {"paused", "paused"}, {"unknown", "not judged"},
}
