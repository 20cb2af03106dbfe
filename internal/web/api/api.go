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

// route registers the operations. The mux has no patterns like /jobs/{job}:pause, so the operations of
// /jobs/{job} and its orders share a handler, which looks at the end of the path.
func (a *API) route(all []operation) {
	byPattern := map[string][]operation{}
	for _, o := range all {
		pattern := strings.TrimSuffix(o.path, ":"+o.order())
		byPattern[pattern] = append(byPattern[pattern], o)
	}
	for pattern, ops := range byPattern {
		a.mux.HandleFunc(Prefix+pattern, func(w http.ResponseWriter, r *http.Request) { a.dispatch(ops, w, r) })
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem.Write(w, fault.NotFound, fmt.Sprintf("no operation has the path %q: %s/openapi.json lists all", r.URL.Path, Prefix))
	})
}

// dispatch serves one of the operations of a pattern: an order, whose name follows the last colon of the
// path, or an operation that is none.
func (a *API) dispatch(ops []operation, w http.ResponseWriter, r *http.Request) {
	name := "job"
	if r.PathValue("id") != "" {
		name = "id"
	}
	value := r.PathValue(name)
	_, err := job.ParseSlotID(value)
	at := strings.LastIndexByte(value, ':')
	order := value[at+1:]
	mayOrder := at >= 0 && err != nil // the token of a slot may end like an order
	var plain *operation
	var allowed []string            // the methods without an order
	orders := map[string][]string{} // the methods of each order
	for _, o := range ops {
		serves := slices.Contains(o.methods(), r.Method)
		switch named := o.order(); {
		case named == "":
			allowed = append(allowed, o.methods()...)
			if serves {
				plain = &o
			}
		case serves && at >= 0 && named == order:
			r.SetPathValue(name, value[:at])
			a.serve(o, w, r)
			return
		default:
			orders[named] = append(orders[named], o.methods()...)
		}
	}
	switch {
	case mayOrder && orders[order] != nil:
		refuseMethod(w, r, orders[order])
	case plain != nil:
		a.serve(*plain, w, r)
	case mayOrder && r.Method == http.MethodPost && len(orders) > 0:
		problem.Write(w, fault.NotFound, fmt.Sprintf("%q names no order: want one that ends in :%s", value, strings.Join(sorted(orders), ", :")))
	default:
		slices.Sort(allowed)
		refuseMethod(w, r, allowed)
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
