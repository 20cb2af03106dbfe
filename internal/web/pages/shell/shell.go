// Package shell has what all pages of the dashboard have in common: the layout, the assets, the
// choice of zone and theme, forms, errors, and the stream of changes. Package pages has the pages.
//
//   - page.go: what a page is, and how it is served. view.go: what its template can use.
//   - form.go: the fields of queries and forms, and their errors.
//   - prefs.go: the zone and the theme. asset.go: style, script and icon.
//   - rights.go: which orders the login of the process may give.
//   - shared.go: one answer for all browsers that refresh the same page, and what a page showed
//     last, for the time in which the broker is away.
//   - live.go: the stream that says what has changed.
//   - reference.go: the page of the HTTP API.
package shell

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/link"
	"github.com/cronce-io/cronce/internal/web/problem"
)

// DefaultPatience is the default of Config.Patience: a page says within two seconds that the broker
// is away.
const DefaultPatience = 1800 * time.Millisecond

// Config of a Site.
type Config struct {
	// Client answers the questions of the pages and carries out the orders.
	Client *client.Client

	// User returns the user of a request. If it is nil or returns "", orders carry the client's own
	// name.
	User func(*http.Request) string

	// Logger logs pages that fail with a status of 500 or more. Nil: no logs.
	Logger *slog.Logger

	// Subscribe returns a channel of the events that the process receives. The channel is closed if its
	// reader is too slow.
	Subscribe func(context.Context) (events <-chan client.Event, leave func(), err error)

	// Recent returns the newest events that the broker does not keep, oldest first, and since when
	// the process receives them.
	Recent func(context.Context) (unkept []client.Event, since time.Time, err error)

	// Version is that of the program.
	Version string

	// Document is the OpenAPI document of the HTTP API. Nil: no page shows it.
	Document []byte

	// Patience bounds how long a page waits for the broker. 0: DefaultPatience.
	Patience time.Duration

	// Templates has the files of the pages.
	Templates fs.FS
}

// Site serves pages. It is safe for concurrent use.
type Site struct {
	cfg   Config
	log   *slog.Logger
	mux   *http.ServeMux
	wrong *template.Template // the page of an error
	known *known
	live  *live
	may   rights

	entries []NavEntry // of the navigation

	shared shared

	closing context.Context
	close   context.CancelFunc
}

// New returns a handler of the pages. Close it at the end. It panics if a template is wrong.
func New(cfg Config, pages []Page) *Site {
	s := &Site{cfg: cfg, log: cfg.Logger, mux: http.NewServeMux(), known: newKnown()}
	s.log = cmp.Or(s.log, slog.New(slog.DiscardHandler))
	s.cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	s.closing, s.close = context.WithCancel(context.Background())
	s.live = newLive(s.closing, cfg)
	s.may.ask = cfg.Client.Rights
	base := layout()
	s.wrong = template.Must(template.Must(base.Clone()).ParseFS(files, "html/problem.html"))
	s.entries = slices.DeleteFunc(slices.Clone(navigation), func(e NavEntry) bool {
		return !slices.ContainsFunc(pages, func(p Page) bool { return p.Path == "/"+e.Path || e.Path == "" && p.Path == "/{$}" })
	})
	for _, p := range pages {
		t := template.Must(template.Must(base.Clone()).ParseFS(cfg.Templates, "html/parts/*.html", "html/"+p.File))
		s.mux.HandleFunc("GET "+p.Path, func(w http.ResponseWriter, r *http.Request) { s.show(p, t, w, r) })
		if p.Do != nil {
			s.mux.HandleFunc("POST "+p.Path, func(w http.ResponseWriter, r *http.Request) { s.do(p, t, w, r) })
		}
	}
	s.mux.HandleFunc("GET /assets/{name}", serveAsset)
	s.mux.HandleFunc("GET /live", s.live.serve)
	s.mux.HandleFunc("POST /preferences", s.setPreferences)
	s.mux.HandleFunc("/", s.notFound)
	return s
}

// Close ends the streams.
func (s *Site) Close() {
	s.close()
	s.live.ended.Wait()
}

// ServeHTTP implements http.Handler.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Site) notFound(w http.ResponseWriter, r *http.Request) {
	if path := r.URL.EscapedPath(); len(path) > 1 && strings.HasSuffix(path, "/") && r.Method == http.MethodGet {
		link.Redirect(w, r, strings.Trim(path, "/"))
		return
	}
	q := s.request(r)
	if _, pattern := s.mux.Handler(&http.Request{Method: http.MethodGet, URL: r.URL, Host: r.Host}); pattern != "/" {
		s.fail(q, problem.New(fault.MethodNotAllowed, fmt.Sprintf("this page does not take %s requests", r.Method))).send(w)
		return
	}
	s.fail(q, problem.New(fault.NotFound, fmt.Sprintf("no page has the path %q", r.URL.Path))).send(w)
}
