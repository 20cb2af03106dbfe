package shell

import (
	"bytes"
	"context"
	"errors"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// Page is a page of the dashboard.
type Page struct {
	// Path is the pattern of its path for http.ServeMux, without a method: "/jobs/{job}".
	Path string

	// Nav is the path of the navigation entry to which the page belongs: "jobs".
	Nav string

	// File is its template, below the folder "html". It defines "title" and "content". A
	// template is executed with a *View, whose Data is what Show has returned.
	File string

	// Show reads what the page shows. An error becomes a page that says what is wrong.
	Show func(*Request) (data any, err error)

	// Do carries out the order of the page's form, and returns the path to which the browser goes
	// then, without a slash at the beginning: Path("jobs", name). If Do fails, the page is shown
	// again, with what was typed and what is wrong. Nil: the page takes no orders.
	Do func(*Request) (to string, err error)

	// Typed reports that the form has the ID "order-form" and fields to type into. Then the choice of zone and
	// theme is sent with the form, and the page is shown again with what was typed.
	Typed bool
}

// Request is a request for a page, or an order.
type Request struct {
	*http.Request

	// Client gives orders in the name of the user.
	Client *client.Client

	// Form has the parameters of the query, or, in an order, the fields of the form.
	Form *Form

	// Prefs are what the user has chosen.
	Prefs Prefs

	// May are the orders that the login of the process may give.
	May client.Rights

	// News is when the process last sent its browsers a message that something has changed. A page
	// that is refreshed must show what was read later than that. Zero: the page is opened, and not
	// refreshed.
	News time.Time

	user   string
	nav    string // that of the page
	inside bool   // the request is for a page that exists

	// invalidUser is why Client does not give orders in the name of the user. Nil: it does.
	invalidUser error
}

// ErrField is returned by Do if fields of the form are wrong.
var ErrField = errors.New("fields of the form are wrong")

func (s *Site) request(r *http.Request) *Request {
	q := &Request{Request: r, Client: s.cfg.Client, Form: newForm(r.URL.Query())}
	q.Prefs = readPrefs(r, q.Form)
	q.May = s.may.get(r.Context())
	if s.cfg.User != nil {
		q.user = s.cfg.User(r)
	}
	if q.user != "" {
		if own, err := s.cfg.Client.As(q.user); err != nil {
			q.invalidUser = err
		} else {
			q.Client = own
		}
	}
	return q
}

// limit bounds the time that a request waits for the broker.
func (s *Site) limit(q *Request, patience time.Duration) context.CancelFunc {
	ctx, cancel := context.WithTimeout(q.Context(), patience)
	q.Request = q.WithContext(ctx)
	return cancel
}

// awayPatience is how long a page waits for the broker if it is known to be away.
const awayPatience = 300 * time.Millisecond

// show answers a GET request.
func (s *Site) show(p Page, t *template.Template, w http.ResponseWriter, r *http.Request) {
	q := s.request(r)
	q.nav, q.inside = p.Nav, true
	if live := r.Header.Get(liveHeader); live != s.live.id {
		if live != "" {
			q.News = time.Now() // the other process sent its message before now
		}
		s.answer(p, t, q).send(w)
		return
	}
	// A browser that leaves must not end what others wait for.
	q.Request = r.WithContext(context.WithoutCancel(r.Context()))
	s.shared.get(q.shareKey(), s.live.news, func(news time.Time) *answer {
		q.News = news
		return s.answer(p, t, q)
	}).send(w)
}

// answer shows a page. If the broker does not answer, it shows what the page showed last.
func (s *Site) answer(p Page, t *template.Template, q *Request) *answer {
	r, key := q.Request, q.key()
	began := time.Now()
	patience := s.cfg.Patience
	if s.live.isAway() {
		patience = min(patience, awayPatience)
	}
	defer s.limit(q, patience)()
	content, err := s.render(p, t, q)
	if err != nil {
		if r.Context().Err() != nil {
			return nil // the browser is gone
		}
		d := problem.Of(err, true)
		last, at, ok := s.known.last(key)
		if d.Status < http.StatusInternalServerError || !ok {
			return s.fail(q, d)
		}
		s.log.Warn("page not read; showing what it showed last", "path", r.URL.Path, "since", at, "error", err)
		return s.compose(q, t, http.StatusServiceUnavailable, page{content: last, typed: p.Typed, read: at, staleSince: at})
	}
	status := http.StatusOK
	if !q.Form.Complete() {
		status = http.StatusBadRequest
	} else {
		s.known.put(key, content, began)
	}
	return s.compose(q, t, status, page{content: content, typed: p.Typed, read: began})
}

// orderPatience is how long an order waits for the broker.
const orderPatience = 10 * time.Second

// do answers a POST request: an order.
func (s *Site) do(p Page, t *template.Template, w http.ResponseWriter, r *http.Request) {
	q := s.request(r)
	q.nav, q.inside = p.Nav, true
	if q.invalidUser != nil {
		s.fail(q, problem.Of(q.invalidUser, false)).send(w)
		return
	}
	if err := r.ParseForm(); err != nil {
		c := fault.Invalid
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			c = fault.TooLarge
		}
		s.fail(q, problem.New(c, "read the form: "+err.Error())).send(w)
		return
	}
	q.Form = newForm(r.PostForm)
	if q.takeChoice() {
		s.showTyped(p, t, q, nil).send(w)
		return
	}
	cancel := s.limit(q, orderPatience)
	to, err := p.Do(q)
	cancel()
	if err == nil && q.Form.OK() {
		link.Redirect(w, r, to)
		return
	}
	if err == nil {
		err = ErrField
	}
	d := problem.Of(err, false)
	if errors.Is(err, ErrField) {
		d = problem.New(fault.Invalid, "nothing was changed: correct the marked fields")
		d.Status = http.StatusUnprocessableEntity
	}
	q.Request = r
	s.showTyped(p, t, q, d).send(w)
}

// showTyped shows the page of a form with what was typed, and the problem of its order, if there is one.
func (s *Site) showTyped(p Page, t *template.Template, q *Request, d *problem.Document) *answer {
	began := time.Now()
	defer s.limit(q, s.cfg.Patience)()
	content, err := s.render(p, t, q)
	switch {
	case err != nil && d == nil:
		return s.fail(q, problem.Of(err, true))
	case err != nil:
		return s.fail(q, d)
	case d != nil:
		return s.compose(q, t, d.Status, page{content: content, typed: p.Typed, read: began, problem: d})
	}
	status := http.StatusOK
	if !q.Form.Complete() {
		status = http.StatusUnprocessableEntity
	}
	return s.compose(q, t, status, page{content: content, typed: p.Typed, read: began})
}

// render calls Show, and executes the page's own templates.
func (s *Site) render(p Page, t *template.Template, q *Request) (content, error) {
	data, err := p.Show(q)
	if err != nil {
		return content{}, err
	}
	return execute(t, s.view(q, data))
}

// content is the part of a page that its own templates write.
type content struct{ title, body template.HTML }

func execute(t *template.Template, v *View) (content, error) {
	var title, body bytes.Buffer
	if err := t.ExecuteTemplate(&title, "title", v); err != nil {
		return content{}, err
	}
	if err := t.ExecuteTemplate(&body, "content", v); err != nil {
		return content{}, err
	}
	// The templates have escaped both.
	return content{template.HTML(bytes.TrimSpace(title.Bytes())), template.HTML(body.Bytes())}, nil //nolint:gosec // see above
}

// page is what the layout shows around the content.
type page struct {
	content    content
	typed      bool      // Page.Typed
	read       time.Time // when the reading of the content began
	staleSince time.Time
	problem    *problem.Document
}

func (s *Site) compose(q *Request, t *template.Template, status int, p page) *answer {
	v := s.view(q, nil)
	v.Title, v.Content, v.Typed, v.StaleSince, v.Problem = p.content.title, p.content.body, p.typed, p.staleSince, p.problem
	v.Read, v.Process = p.read, s.live.id
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "layout", v); err != nil {
		s.log.Error("layout failed", "error", err)
		return &answer{status: http.StatusInternalServerError, data: []byte("the page cannot be shown")}
	}
	if q.unzips() {
		return &answer{status, true, zipPage(b.Bytes())}
	}
	return &answer{status, false, b.Bytes()}
}

func (q *Request) unzips() bool { return strings.Contains(q.Header.Get("Accept-Encoding"), "gzip") }

// fail returns a page that shows only a problem.
func (s *Site) fail(q *Request, d *problem.Document) *answer {
	if d.Status >= http.StatusInternalServerError {
		s.log.Warn("page failed", "path", q.URL.Path, "status", d.Status, "error", d.Detail)
	}
	content, err := execute(s.wrong, s.view(q, d))
	if err != nil {
		s.log.Error("problem page failed", "error", err)
	}
	return s.compose(q, s.wrong, d.Status, page{content: content})
}

// key names what a page shows: its address, and the choices that change its content.
func (q *Request) key() string { return q.Prefs.Zone + " " + q.URL.RequestURI() }
