package shell

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
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

// show answers a GET request. If the broker does not answer, it shows what the page showed last.
func (s *Site) show(p Page, t *template.Template, w http.ResponseWriter, r *http.Request) {
	q := s.request(r)
	q.nav, q.inside = p.Nav, true
	key := q.key()
	began := time.Now()
	patience := s.cfg.Patience
	if s.live.isAway() {
		patience = min(patience, awayPatience)
	}
	defer s.limit(q, patience)()
	read := func() (content, error) { return s.render(p, t, q) }
	if r.Header.Get("HX-Request") != "" {
		read = func() (content, error) { return s.shared(p, t, q, key) }
	}
	content, err := read()
	if err != nil {
		if r.Context().Err() != nil {
			return // the browser is gone
		}
		c := codeOf(err, true)
		last, at, ok := s.known.last(key)
		if c.Status < http.StatusInternalServerError || !ok {
			s.fail(w, q, c, err.Error())
			return
		}
		s.log.Warn("page shows what it knew", "path", r.URL.Path, "error", err)
		s.write(w, q, t, http.StatusServiceUnavailable, page{content: last, staleSince: at, problem: documentOf(c, err)})
		return
	}
	status := http.StatusOK
	if q.Form.unasked(); q.Form.wrong() {
		status = http.StatusBadRequest
	} else {
		s.known.put(key, content, began)
	}
	s.write(w, q, t, status, page{content: content})
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
		s.fail(w, q, c, "read the form: "+err.Error())
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
		s.fail(w, q, c, err.Error())
		return
	}
	s.write(w, q, t, d.Status, page{content: content, problem: d})
}

// render executes the page's own templates.
func (s *Site) render(p Page, t *template.Template, q *Request) (content, error) {
	data, err := p.Show(q)
	if err != nil {
		return content{}, err
	}
	return execute(t, s.view(q, data))
}

// shared renders a part that changes. Browsers that show the same page share it: each message of
// the stream makes all of them ask at once.
func (s *Site) shared(p Page, t *template.Template, q *Request, key string) (content, error) {
	since := time.Unix(0, s.live.at.Load())
	if c, ok := s.known.fresh(key, since); ok {
		q.Form.trust()
		return c, nil
	}
	type rendered struct {
		content content
		form    *Form
	}
	one, err, _ := s.flights.Do(fmt.Sprint(since.UnixNano(), " ", key), func() (any, error) {
		c, err := s.render(p, t, q)
		return rendered{c, q.Form}, err
	})
	if err != nil {
		return content{}, err
	}
	r := one.(rendered)
	q.Form = r.form
	return r.content, nil
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

// write sends a whole page. Browsers must not keep it: what it shows changes.
func (s *Site) write(w http.ResponseWriter, q *Request, t *template.Template, status int, p page) {
	v := s.view(q, nil)
	v.Title, v.Content, v.StaleSince, v.Problem = p.content.title, p.content.body, p.staleSince, p.problem
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, "layout", v); err != nil {
		s.log.Error("layout failed", "error", err)
		http.Error(w, "the page cannot be shown", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept-Encoding, Cookie, HX-Request")
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "2")
		h.Set("Refresh", "5") // for browsers without a script
	}
	data := b.Bytes()
	if strings.Contains(q.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		data = zip(data, gzip.BestSpeed)
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data) // the browser is gone
}

// fail sends the page of an error.
func (s *Site) fail(w http.ResponseWriter, q *Request, c fault.Code, detail string) {
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
	s.write(w, q, s.wrong, c.Status, page{content: content})
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
