package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/job"
)

// Prefix is where the operations are, below the place where the handler is mounted.
const Prefix = "/api/v1"

// DefaultPatience is the default of Config.Patience.
const DefaultPatience = 20 * time.Second

// Config of an API.
type Config struct {
	// Client carries out the operations.
	Client *client.Client

	// User returns the user of a request. If it is nil or returns "", the order carries the
	// client's own name.
	User func(*http.Request) string

	// Logger logs requests that fail with a status of 500 or more, and failures of the event
	// feed. Nil: no logs.
	Logger *slog.Logger

	// Version is that of the program.
	Version string

	// Patience bounds the time of a request, apart from those that wait, verify or stream. 0:
	// DefaultPatience.
	Patience time.Duration
}

// API serves the operations. It is safe for concurrent use.
type API struct {
	cfg      Config // with its defaults
	mux      *http.ServeMux
	document []byte

	// closing ends event streams and waiting requests.
	closing context.Context
	close   context.CancelFunc
	feed    *feed

	// streams and verifying bound the event streams and the verifications that run. A verification
	// reads all records of its range.
	streams, verifying *semaphore.Weighted
}

// New returns a handler for the paths below Prefix. Close it at the end.
func New(cfg Config) *API {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	cfg.Patience = cmp.Or(cfg.Patience, DefaultPatience)
	a := &API{cfg: cfg, mux: http.NewServeMux(), streams: semaphore.NewWeighted(maxStreams), verifying: semaphore.NewWeighted(maxVerifying)}
	a.closing, a.close = context.WithCancel(context.Background())
	a.feed = newFeed(a.closing, cfg.Client, cfg.Logger)
	a.document = document(operations(), cfg.Version)
	a.route(operations())
	return a
}

// Document is the OpenAPI document. Do not change it.
func (a *API) Document() []byte { return a.document }

// Close ends the event streams, the waiting requests and the feed of events.
func (a *API) Close() {
	a.close()
	a.feed.ended.Wait()
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

// route registers the operations. The mux has no patterns like /jobs/{job}:pause, so the
// operations of one pattern share a handler, which looks at the end of the path.
func (a *API) route(all []operation) {
	methods := map[string][]string{} // those of a pattern without an order
	verbs := map[string]map[string]operation{}
	orders := map[string][]string{} // the methods of /jobs/{job}:pause, by that path
	for _, o := range all {
		pattern, verb, _ := strings.Cut(o.path, "}:")
		if verb != "" {
			pattern += "}"
		}
		pattern = Prefix + pattern
		switch {
		case verb != "":
			orders[pattern+":"+verb] = append(orders[pattern+":"+verb], o.method)
		case o.method == http.MethodGet:
			methods[pattern] = append(methods[pattern], http.MethodGet, http.MethodHead) // the mux serves HEAD with GET
		default:
			methods[pattern] = append(methods[pattern], o.method)
		}
		key := o.method + " " + pattern
		if verbs[key] == nil {
			verbs[key] = map[string]operation{}
		}
		verbs[key][verb] = o
	}
	for _, allowed := range methods {
		slices.Sort(allowed)
	}
	for key, ops := range verbs {
		if one, ok := ops[""]; ok {
			a.mux.HandleFunc(key, func(w http.ResponseWriter, r *http.Request) {
				if allowed := orders[orderPath(r)]; allowed != nil {
					refuseMethod(w, r, allowed)
					return
				}
				a.serve(one, w, r)
			})
			continue
		}
		_, pattern, _ := strings.Cut(key, " ")
		a.mux.HandleFunc(key, func(w http.ResponseWriter, r *http.Request) { a.serveVerb(ops, methods[pattern], w, r) })
	}
	for pattern, allowed := range methods {
		a.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if methods := orders[orderPath(r)]; methods != nil {
				refuseMethod(w, r, methods)
				return
			}
			refuseMethod(w, r, allowed)
		})
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, fault.NotFound, fmt.Sprintf("no operation has the path %q: %s/openapi.json lists all", r.URL.Path, Prefix))
	})
}

func refuseMethod(w http.ResponseWriter, r *http.Request, allowed []string) {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem.Write(w, fault.MethodNotAllowed, fmt.Sprintf("method %s: want %s", r.Method, strings.Join(allowed, " or ")))
}

// orderPath returns the path of the order that the request seems to name, like /jobs/{job}:pause, or "".
// The token of a slot may end like an order.
func orderPath(r *http.Request) string {
	name, id := r.PathValue("job"), r.PathValue("id")
	if _, err := job.ParseSlotID(id); err == nil {
		return ""
	}
	at := strings.LastIndexByte(name+id, ':')
	if at < 0 {
		return ""
	}
	_, pattern, _ := strings.Cut(r.Pattern, Prefix)
	return Prefix + pattern + (name + id)[at:]
}

// serveVerb serves the operation whose name follows the last colon of the path. A path without an order
// has the methods plain.
func (a *API) serveVerb(ops map[string]operation, plain []string, w http.ResponseWriter, r *http.Request) {
	for _, name := range []string{"job", "id"} {
		value := r.PathValue(name)
		if value == "" {
			continue
		}
		at := strings.LastIndexByte(value, ':')
		if o, ok := ops[value[at+1:]]; ok && at >= 0 {
			r.SetPathValue(name, value[:at])
			a.serve(o, w, r)
			return
		}
		if _, err := job.ParseSlotID(value); err == nil || at < 0 {
			refuseMethod(w, r, plain)
			return
		}
		problem.Write(w, fault.NotFound, fmt.Sprintf("%q names no order: want one that ends in :%s", value, strings.Join(sorted(ops), ", :")))
		return
	}
}

func (a *API) serve(o operation, w http.ResponseWriter, r *http.Request) {
	err := o.serve(a, w, r)
	if err == nil || r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return // the request was answered, or the client is gone
	}
	d := problem.Of(err, o.method == http.MethodGet)
	if d.Status >= http.StatusInternalServerError {
		a.cfg.Logger.Warn("request failed", "method", r.Method, "path", r.URL.Path, "status", d.Status, "error", err)
	}
	d.Write(w)
}

// call prepares a request: its client gives orders in the name of the user.
func (a *API) call(w http.ResponseWriter, r *http.Request) (*call, error) {
	c := &call{Client: a.cfg.Client, api: a, status: http.StatusOK, header: w.Header(), query: r.URL.Query(), request: r.Context(), to: http.NewResponseController(w)}
	if a.cfg.User == nil {
		return c, nil
	}
	if by := a.cfg.User(r); by != "" {
		var err error
		if c.Client, err = a.cfg.Client.As(by); err != nil {
			return nil, err
		}
	}
	return c, nil
}
