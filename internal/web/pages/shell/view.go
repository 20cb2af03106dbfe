package shell

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// View is what a template is executed with.
type View struct {
	// Data is what Show has returned.
	Data any

	// Form has what was typed, Prefs what the user has chosen.
	Form  *Form
	Prefs Prefs

	// May are the orders that the login of the process may give: a page offers no other ones.
	May client.Rights

	// Root is the relative URL of the first page, with a slash at its end.
	Root string

	// User is "" if it is not known. Version is that of the program.
	User, Version string

	// Session reports whether the browser has logged in on a page of this server, and can log out.
	Session bool

	// Problem is why an order was not carried out. StaleSince is set if the broker does not answer:
	// the page then shows what it showed last, which was read at that time.
	Problem    *problem.Document
	StaleSince time.Time

	// Read is when the reading of the page began, and Process the process that read it: the script of the page
	// sends both to the stream of changes.
	Read    time.Time
	Process string

	// Title and Content are for the layout only.
	Title, Content template.HTML

	// Typed is that of the page, for the layout only.
	Typed bool

	entries []NavEntry
	nav     string
	inside  bool // nav is that of a page, and not of an error
	url     *url.URL
	now     time.Time
}

func (s *Site) view(q *Request, data any) *View {
	return &View{
		Data: data, Form: q.Form, Prefs: q.Prefs, May: q.May, Root: link.Root(q.Request), User: q.user, Version: s.cfg.Version, Session: q.hasSession(),
		entries: s.entries, nav: q.nav, inside: q.inside, url: q.URL, now: time.Now(),
	}
}

func (q *Request) hasSession() bool {
	_, err := q.Cookie(link.SessionCookie)
	return err == nil && q.user != ""
}

// Path returns the path of a page, without a slash at its beginning. Each part becomes one
// segment, whatever it contains.
func Path(parts ...string) string {
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return strings.Join(parts, "/")
}

// Link returns the relative URL of a page: {{$.Link "jobs" .Job}}.
func (v *View) Link(parts ...string) string { return v.Root + Path(parts...) }

// With returns the URL of this page with a parameter of its query changed: {{$.With "range"
// "week"}}. An empty value removes the parameter.
func (v *View) With(name, value string) string {
	query := v.url.Query()
	if query.Set(name, value); value == "" {
		query.Del(name)
	}
	return "?" + query.Encode()
}

// Here is the path and query of this page, for a form that leads back to the page. It begins with one slash: in
// "jobs:bulk", "jobs" would be a scheme.
func (v *View) Here() string { return "/" + strings.TrimLeft(v.url.RequestURI(), "/") }

// Asset returns the URL of a file of the folder "static".
func (v *View) Asset(name string) (string, error) {
	a, ok := assets[name]
	if !ok {
		return "", fmt.Errorf("no asset has the name %q", name)
	}
	return v.Root + "assets/" + a.hashed, nil
}

// NavEntry is an entry of the navigation.
type NavEntry struct {
	Path, Label string
	Current     bool
}

// navigation has the entries in their order. One whose page does not exist is left out.
var navigation = []NavEntry{
	{Path: "", Label: "Now"}, {Path: "jobs", Label: "Jobs"}, {Path: "nodes", Label: "Fleet"}, {Path: "health", Label: "Health"},
	{Path: "activity", Label: "Activity"}, {Path: "schedule", Label: "Try a schedule"},
}

// Nav returns the entries of the navigation.
func (v *View) Nav() []NavEntry {
	all := slices.Clone(v.entries)
	for i := range all {
		all[i].Current = v.inside && all[i].Path == v.nav
	}
	return all
}

// ReadOnly reports whether the login of the process may give no orders.
func (v *View) ReadOnly() bool { return v.May == client.Rights{} }

// Sub returns the view with other Data, for a template that is used by another one.
func (v *View) Sub(data any) *View {
	other := *v
	other.Data = data
	return &other
}

// Text shows foreign text: names, errors, outputs. Characters that are invisible or change the
// direction of text become escapes.
func (v *View) Text(s any) string { return printable.Text(fmt.Sprint(s)) }

// Line is Text on one line, cut to a number of bytes.
func (v *View) Line(s any, most int) string { return printable.Clip(fmt.Sprint(s), most) }

// Now is the time of the page.
func (v *View) Now() time.Time { return v.now }

// Time shows a time that belongs to no job, in the zone that the user has chosen. With ZoneJob, that
// is UTC.
func (v *View) Time(t time.Time) template.HTML { return v.TimeIn(t, "") }

// TimeIn shows a time of a job whose schedule has this zone.
func (v *View) TimeIn(t time.Time, zone string) template.HTML {
	if t.IsZero() {
		return ""
	}
	t = t.In(v.Prefs.In(zone))
	form := "Mon 2 Jan 15:04:05"
	if t.Year() != v.now.In(t.Location()).Year() {
		form = "2 Jan 2006 15:04:05"
	}
	return element(t, t.Format(form)+" "+t.Format("MST"), "")
}

// Clock shows only the time of day.
func (v *View) Clock(t time.Time) template.HTML {
	t = t.In(v.Prefs.In(""))
	return element(t, t.Format("15:04:05"), "")
}

// Ago shows how long ago a time is, or in how long it is. The script of the page keeps it up to
// date.
func (v *View) Ago(t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	return element(t, Relative(t, v.now), " data-ago")
}

// element writes a time element. It escapes the texts, since the zone's abbreviation does not come
// from this program.
func element(t time.Time, text, attributes string) template.HTML {
	return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339) + `" title="` + //nolint:gosec // escaped
		template.HTMLEscapeString(t.Format("Mon 2006-01-02 15:04:05 MST")+" · "+t.UTC().Format("15:04:05 UTC")) + `"` + attributes + `>` +
		template.HTMLEscapeString(text) + `</time>`)
}

// Relative says how far t is from now: "in 3 min", "2 h ago". static/app.js does the same, in whole
// seconds. Longer times than a Duration can hold, 292 years, are counted in days.
func Relative(t, now time.Time) string {
	d := t.Sub(now)
	text := Span(d.Abs())
	switch {
	case d == math.MinInt64:
		return fmt.Sprintf("%d d ago", (now.Unix()-t.Unix())/(24*60*60))
	case d == math.MaxInt64:
		return fmt.Sprintf("in %d d", (t.Unix()-now.Unix())/(24*60*60))
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return text + " ago"
	}
	return "in " + text
}

// Span shows a duration in its two largest units that matter.
func Span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(large time.Duration, largeName string, small time.Duration, smallName string) string {
		text := fmt.Sprintf("%d %s", d/large, largeName)
		if rest := d % large / small; rest > 0 && d < 10*large {
			text += fmt.Sprintf(" %d %s", rest, smallName)
		}
		return text
	}
	switch {
	case d < time.Millisecond && d > 0:
		return fmt.Sprintf("%d µs", d/time.Microsecond)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(time.Minute, "min", time.Second, "s")
	case d < day:
		return two(time.Hour, "h", time.Minute, "min")
	}
	return two(day, "d", time.Hour, "h")
}

// Millis shows a number of milliseconds as a duration.
func (v *View) Millis(ms float64) string { return Span(time.Duration(ms * float64(time.Millisecond))) }

// Span is the function Span, for templates.
func (v *View) Span(d time.Duration) string { return Span(d) }
