package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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

// resource is what the API serves at a pattern of the mux.
type resource struct {
	methods map[string]operation // by the method of the request
	orders  map[string]operation // by the end of the path: "pause" for /jobs/{job}:pause
}

// route registers the operations. The mux has no patterns like /jobs/{job}:pause, so the operations of
// /jobs/{job} and its orders are one resource, whose handler looks at the end of the path.
func (a *API) route(all []operation) {
	resources := map[string]resource{}
	for _, o := range all {
		_, order, _ := strings.Cut(o.path, "}:")
		pattern := strings.TrimSuffix(o.path, ":"+order)
		s, ok := resources[pattern]
		if !ok {
			s = resource{map[string]operation{}, map[string]operation{}}
			resources[pattern] = s
			a.mux.HandleFunc(Prefix+pattern, func(w http.ResponseWriter, r *http.Request) { a.dispatch(s, w, r) })
		}
		if order != "" {
			s.orders[order] = o
			continue
		}
		s.methods[o.method] = o
		if o.method == http.MethodGet {
			s.methods[http.MethodHead] = o
		}
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, fault.NotFound, fmt.Sprintf("no operation has the path %q: %s/openapi.json lists all", r.URL.Path, Prefix))
	})
}

// dispatch serves one of the operations of a resource: an order, whose name follows the last colon of the
// path, or an operation that is none.
func (a *API) dispatch(s resource, w http.ResponseWriter, r *http.Request) {
	name := "job"
	if r.PathValue("id") != "" {
		name = "id"
	}
	value := r.PathValue(name)
	at := strings.LastIndexByte(value, ':')
	order, known := s.orders[value[at+1:]]
	known = known && at >= 0
	_, err := job.ParseSlotID(value)
	mayOrder := at >= 0 && err != nil // the token of a slot may end like an order
	plain, serves := s.methods[r.Method]
	switch {
	case known && r.Method == order.method:
		r.SetPathValue(name, value[:at])
		a.serve(order, w, r)
	case known && mayOrder:
		refuseMethod(w, r, []string{order.method})
	case serves:
		a.serve(plain, w, r)
	case mayOrder && r.Method == http.MethodPost && len(s.orders) > 0:
		problem.Write(w, fault.NotFound, fmt.Sprintf("%q names no order: want one that ends in :%s", value, strings.Join(sorted(s.orders), ", :")))
	default:
		refuseMethod(w, r, sorted(s.methods))
	}
}

func refuseMethod(w http.ResponseWriter, r *http.Request, allowed []string) {
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	problem.Write(w, fault.MethodNotAllowed, fmt.Sprintf("method %s: want %s", r.Method, strings.Join(allowed, " or ")))
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
