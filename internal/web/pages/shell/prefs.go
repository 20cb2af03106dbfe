package shell

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/schedule/tzdata"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// Special values of Prefs.Zone.
const (
	ZoneUTC = "UTC"
	ZoneJob = "job" // the zone of each job; UTC for times that belong to no job
)

// Prefs are what a user has chosen, kept in cookies. The parameter "zone" of the query overrides
// the cookie, so that a link can name a zone.
type Prefs struct {
	Zone  string // ZoneUTC, ZoneJob, or a name like "Europe/Berlin"
	Theme string // "light", "dark", or "auto": that of the system

	// Location is the location of the zone. It is UTC with ZoneJob.
	Location *time.Location
}

const (
	zoneCookie  = "cronce_zone"
	themeCookie = "cronce_theme"
	keepCookie  = 365 * 24 * time.Hour
)

// Fields of the form in which zone and theme are chosen. On a page with a form of its own, they are fields
// of that form, so that the choice keeps what was typed: see Page.Typed.
const (
	chosenZone  = "choose-zone"
	chosenTheme = "choose-theme"
	chosenNext  = "next" // the page to go back to

	// showOnly asks a page to show what was typed, and what an order would do, without carrying it out.
	showOnly = "show"
)

var ofLayout = []string{"zone", chosenZone, chosenTheme, chosenNext, showOnly}

// takeChoice sets the zone to that in which the user has seen the form, unless he has chosen another one. So
// a time means what the page said, even if the zone was changed in another tab meanwhile.
func (q *Request) takeChoice() (show bool) {
	f := q.Form
	show = f.Get(showOnly) != ""
	zone, chosen := f.Get("zone"), f.Get(chosenZone)
	for _, name := range ofLayout {
		f.Get(name)
	}
	if show && chosen != "" {
		zone = chosen
	}
	if zone != "" && !q.Prefs.setZone(zone) {
		f.Wrong("zone", "%s", noZone(zone))
	}
	return show
}

func readPrefs(r *http.Request, f *Form) Prefs {
	p := Prefs{Zone: ZoneUTC, Theme: "auto", Location: time.UTC}
	if c, err := r.Cookie(themeCookie); err == nil && isTheme(c.Value) {
		p.Theme = c.Value
	}
	if c, err := r.Cookie(zoneCookie); err == nil {
		if name, err := url.QueryUnescape(c.Value); err == nil {
			p.setZone(name)
		}
	}
	if name := f.Get("zone"); name != "" && !p.setZone(name) {
		f.Wrong("zone", "%s", noZone(name))
	}
	return p
}

func noZone(name string) string {
	return fmt.Sprintf("no zone has the name %q: want UTC, job, or a name like Europe/Berlin", clip(name))
}

func isTheme(s string) bool { return s == "light" || s == "dark" || s == "auto" }

func (p *Prefs) setZone(name string) bool {
	if name == ZoneUTC || name == ZoneJob {
		p.Zone, p.Location = name, time.UTC
		return true
	}
	if name == "" || name == "Local" || len(name) > 64 {
		return false
	}
	loc, err := tzdata.Load(name)
	if err != nil {
		return false
	}
	p.Zone, p.Location = name, loc
	return true
}

// In returns the zone in which to show the times of a job whose schedule has the zone jobZone.
func (p Prefs) In(jobZone string) *time.Location {
	if p.Zone != ZoneJob {
		return p.Location
	}
	if loc, err := tzdata.Load(jobZone); err == nil {
		return loc
	}
	return time.UTC
}

// setPreferences sets the cookies, and sends the browser back to the page that it came from.
func (s *Site) setPreferences(w http.ResponseWriter, r *http.Request) {
	q := s.request(r)
	if err := r.ParseForm(); err != nil {
		s.fail(q, problem.New(fault.Invalid, "read the form: "+err.Error())).send(w)
		return
	}
	var p Prefs
	zone, theme := r.PostForm.Get(chosenZone), r.PostForm.Get(chosenTheme)
	switch {
	case zone != "" && !p.setZone(zone):
		s.fail(q, problem.New(fault.Invalid, noZone(zone))).send(w)
		return
	case theme != "" && !isTheme(theme):
		s.fail(q, problem.New(fault.Invalid, fmt.Sprintf("no theme has the name %q: want light, dark or auto", clip(theme)))).send(w)
		return
	}
	// A cookie without a path is valid below the folder of this request, where the pages are mounted.
	for name, value := range map[string]string{zoneCookie: url.QueryEscape(zone), themeCookie: theme} {
		if value != "" {
			http.SetCookie(w, &http.Cookie{
				Name: name, Value: value, MaxAge: int(keepCookie / time.Second),
				HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
			})
		}
	}
	next := link.Local(inZone(r.PostForm.Get(chosenNext), zone))
	if r.PostForm.Has(showOnly) {
		link.Repeat(w, r, next)
		return
	}
	link.Redirect(w, r, next)
}

// inZone returns the address of a page in which a zone, if the address names one, is the chosen one: the cookie
// alone would not change what the page shows.
func inZone(next, zone string) string {
	u, err := url.Parse(next)
	if err != nil || zone == "" || !u.Query().Has("zone") {
		return next
	}
	query := u.Query()
	query.Set("zone", zone)
	u.RawQuery = query.Encode()
	return u.String()
}
