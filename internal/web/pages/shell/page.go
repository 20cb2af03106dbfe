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
	"github.com/cronce-io/cronce/internal/text/printable"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/job"
)

// Page is a page of the dashboard.
type Page struct {
	// Path is the pattern of its path, as of http.ServeMux, without a method: "/jobs/{job}".
	Path string

	// Nav is the path of the entry in the navigation that it belongs to: "jobs".
	Nav string

	// File is its template, below the folder "html". It defines "title" and "content". A
	// template is executed with a *View, whose Data is what Show has returned.
	File string

	// Show reads what the page shows. An error becomes a page that says what is wrong.
	Show func(*Request) (data any, err error)

	// Do carries out the order of the page's form, and returns the path of the page to go to,
	// without a slash at the beginning: Path("jobs", name). If it fails, Show is called, and the page
	// is shown with what was typed and what is wrong. Nil: the page takes no orders.
	Do func(*Request) (to string, err error)
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

	// News is when the process last heard that something has changed. A browser that refreshes
	// its page has heard it too, so what it gets must be read later. Zero: the page is opened.
	News time.Time

	// Failed is why the order was not carried out, when Show is called after Do.
	Failed error

	user   string
	nav    string // that of the page
	inside bool   // a page exists
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
		if own, err := s.cfg.Client.As(q.user); err == nil {
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
			q.News = time.Now() // at the latest
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
		c := codeOf(err, true)
		last, at, ok := s.known.last(key)
		if c.Status < http.StatusInternalServerError || !ok {
			return s.fail(q, c, err.Error())
		}
		s.log.Warn("page shows what it knew", "path", r.URL.Path, "error", err)
		return s.compose(q, t, http.StatusServiceUnavailable, page{content: last, staleSince: at, problem: documentOf(c, err)})
	}
	status := http.StatusOK
	if q.Form.unasked(); q.Form.wrong() {
		status = http.StatusBadRequest
	} else {
		s.known.put(key, content, began)
	}
	return s.compose(q, t, status, page{content: content})
}

// orderPatience is how long an order waits for the broker.
const orderPatience = 10 * time.Second

// do answers a POST request: an order.
func (s *Site) do(p Page, t *template.Template, w http.ResponseWriter, r *http.Request) {
	q := s.request(r)
	q.nav, q.inside = p.Nav, true
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		c := fault.Invalid
		if errors.As(err, &large) {
			c = fault.TooLarge
		}
		s.fail(q, c, "read the form: "+err.Error()).send(w)
		return
	}
	q.Form = newForm(r.PostForm)
	cancel := s.limit(q, orderPatience)
	to, err := p.Do(q)
	cancel()
	if err == nil && !q.Form.wrong() {
		link.Redirect(w, r, to)
		return
	}
	if err == nil {
		err = ErrField
	}
	c := codeOf(err, false)
	d := documentOf(c, err)
	if errors.Is(err, ErrField) {
		d = problem.New(fault.Invalid, "nothing was changed: mend the fields that are marked")
		d.Status = http.StatusUnprocessableEntity
	}
	q.Request, q.Failed = r, err
	defer s.limit(q, s.cfg.Patience)()
	content, showErr := s.render(p, t, q)
	if showErr != nil {
		s.fail(q, c, err.Error()).send(w)
		return
	}
	s.compose(q, t, d.Status, page{content: content, problem: d}).send(w)
}

// render executes the page's own templates.
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
	staleSince time.Time
	problem    *problem.Document
}

// compose returns a whole page.
func (s *Site) compose(q *Request, t *template.Template, status int, p page) *answer {
	v := s.view(q, nil)
	v.Title, v.Content, v.StaleSince, v.Problem = p.content.title, p.content.body, p.staleSince, p.problem
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

// fail returns the page of an error.
func (s *Site) fail(q *Request, c fault.Code, detail string) *answer {
	if c.Status >= http.StatusInternalServerError {
		s.log.Warn("page failed", "path", q.URL.Path, "status", c.Status, "error", detail)
	}
	d := problem.New(c, strings.ReplaceAll(detail, "\n", "; "))
	if c == fault.Unavailable {
		d.Detail = "the NATS server has not answered in time"
	}
	v := s.view(q, d)
	content, err := execute(s.wrong, v)
	if err != nil {
		s.log.Error("page of an error failed", "error", err)
	}
	return s.compose(q, s.wrong, c.Status, page{content: content})
}

// codeOf returns the code of an error. A question changes nothing, so if it is not answered in
// time, it is unavailable, and not unknown as an order.
func codeOf(err error, question bool) fault.Code {
	c := fault.Of(err)
	if question && c == fault.Unknown {
		return fault.Unavailable
	}
	return c
}

func documentOf(c fault.Code, err error) *problem.Document {
	d := problem.New(c, printable.Text(strings.ReplaceAll(err.Error(), "\n", "; ")))
	var lost *client.ConflictError
	if errors.As(err, &lost) {
		d.By, d.Revision = lost.By, lost.Revision
	}
	if errors.Is(err, job.ErrConflict) {
		d.Title = "Another change was faster"
	}
	return d
}

// key names what a page shows: its address, and the choices that change its content.
func (q *Request) key() string { return q.Prefs.Zone + " " + q.URL.RequestURI() }
