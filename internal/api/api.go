package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/sync/semaphore"

	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/schema"
	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/tracing"
	"github.com/cronce-io/cronce/kv"
)

// For returns the function that starts the service of one incarnation, for replica.Config.Serve.
// now is the clock; log may be nil. status describes the node, and handlers are the jobs for which it has
// handlers. Neither may block. stop ends the
// service and waits for running requests.
func For(nc *nats.Conn, store *kv.Store, now func() time.Time, log *slog.Logger) func(ctx context.Context, name string, status func() exchange.Node, handlers func() []string) (stop func(), err error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return func(ctx context.Context, name string, status func() exchange.Node, handlers func() []string) (func(), error) {
		s := &server{conn: nc, store: store, now: now, log: log, name: name, status: status, handlers: handlers, limit: semaphore.NewWeighted(maxRunning)}
		s.ctx, s.cancel = context.WithCancel(ctx)
		stop, err := s.start()
		if err != nil {
			s.cancel()
			return nil, fmt.Errorf("start the NATS service: %w", err)
		}
		return stop, nil
	}
}

const (
	// maxRunning bounds the requests that one node handles at once. More are queued.
	maxRunning = 16

	// patience bounds a request.
	patience = 20 * time.Second
)

// server answers the requests to one incarnation.
type server struct {
	conn     *nats.Conn
	store    *kv.Store
	now      func() time.Time
	log      *slog.Logger
	name     string
	status   func() exchange.Node
	handlers func() []string

	ctx     context.Context
	cancel  context.CancelFunc
	limit   *semaphore.Weighted // bounds the running requests
	mu      sync.Mutex          // so that no request starts after stop
	running sync.WaitGroup
}

func (s *server) start() (stop func(), err error) {
	ns, n := s.store.Namespace, s.status()
	login, err := s.permissions()
	offers, later := err == nil && s.mayOperate(login), err == nil && s.maySetTimers(login)
	svc, err := micro.AddService(s.conn, micro.Config{
		Name: layout.ServiceName(ns), Version: semantic(n.Version), Description: "a node of Cronce's fleet",
		Metadata: map[string]string{
			"namespace": ns, "node": s.name, "version": n.Version, "queues": strings.Join(n.Queues, ","),
			"producer": fmt.Sprint(n.Producer), "worker": fmt.Sprint(n.Worker), "orders": fmt.Sprint(offers),
		},
		StatsHandler: func(*micro.Endpoint) any { return s.self() },
	})
	if err != nil {
		return nil, err
	}
	stop = func() {
		s.mu.Lock()
		s.cancel()
		s.mu.Unlock()
		_ = svc.Stop() // it fails only if the connection is closed, and then the service has ended
		s.running.Wait()
	}
	err = svc.AddEndpoint("node", micro.HandlerFunc(func(r micro.Request) { s.answer(r, s.self(), nil) }),
		micro.WithEndpointSubject(layout.APISubject(ns, "node."+s.name)), micro.WithEndpointQueueGroupDisabled(),
		micro.WithEndpointMetadata(map[string]string{"description": "What this node is and does.", "response_schema": schema.Text[Node]()}))
	var offered []order
	if offers {
		offered = orders()
	}
	if later {
		offered = append(offered, laterOrder())
	}
	for _, o := range offered {
		if err == nil {
			err = svc.AddEndpoint(strings.ReplaceAll(strings.TrimSuffix(o.name, ".*"), ".", "-"), s.handler(o), micro.WithEndpointSubject(layout.APISubject(ns, o.name)),
				micro.WithEndpointMetadata(map[string]string{"description": o.what, "request_schema": o.in, "response_schema": o.out}))
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	_ = s.conn.FlushTimeout(time.Second) // so that a client that sees the node's heartbeat reaches its service
	return stop, nil
}

// Node is a node's description of itself.
type Node struct {
	Node        string   `json:"node"`
	Namespace   string   `json:"namespace"`
	Producer    bool     `json:"producer"`
	Worker      bool     `json:"worker"`
	Queues      []string `json:"queues,omitempty"`
	Handlers    []string `json:"handlers,omitempty"`
	Running     int      `json:"running"`
	ClockOffset float64  `json:"clock_offset_ms"`
	Tzdata      string   `json:"tzdata,omitempty"`
	Version     string   `json:"version,omitempty"`
}

func (s *server) self() Node {
	n := s.status()
	return Node{
		s.name, s.store.Namespace, n.Producer, n.Worker, n.Queues, s.handlers(), n.Running,
		float64(n.ClockOffset) / float64(time.Millisecond), n.Tzdata, n.Version,
	}
}

// handler carries out requests concurrently, at most maxRunning at once.
func (s *server) handler(o order) micro.Handler {
	return micro.HandlerFunc(func(r micro.Request) {
		if s.limit.Acquire(s.ctx, 1) != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ctx.Err() != nil {
			s.limit.Release(1)
			return
		}
		s.running.Go(func() {
			defer s.limit.Release(1)
			ctx, cancel := context.WithTimeout(s.ctx, patience)
			defer cancel()
			value, err := o.run(tracing.Continue(ctx, r.Headers()), s, r)
			s.answer(r, value, err)
		})
	})
}

// answer sends a value or an error. It shortens a page to what fits into a message. It does not use the methods of r,
// which note a failure for the statistics of the service: by then the service may be reading that.
func (s *server) answer(r micro.Request, value any, err error) {
	var data []byte
	if p, ok := value.(interface{ fit(int64) (any, error) }); ok && err == nil {
		value, err = p.fit(s.conn.MaxPayload())
	}
	if err == nil {
		data, err = json.Marshal(value)
	}
	if err == nil && int64(len(data)) > s.conn.MaxPayload() {
		err = fmt.Errorf("the answer has %d bytes, more than the NATS server accepts: ask for less", len(data))
	}
	m := &nats.Msg{Subject: r.Reply(), Data: data}
	if err != nil {
		m.Data, m.Header = nil, nats.Header{micro.ErrorHeader: {line(err)}, micro.ErrorCodeHeader: {strconv.Itoa(fault.Of(err).Status)}}
	}
	if err := s.conn.PublishMsg(m); err != nil {
		s.log.Debug("answer not sent", "subject", r.Subject(), "error", err)
	}
}

var version = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// semantic returns v as a semantic version, which NATS requires of a service, or 0.0.0 if v is
// none.
func semantic(v string) string {
	if v = strings.TrimPrefix(v, "v"); version.MatchString(v) {
		return v
	}
	return "0.0.0"
}

var notPlain = regexp.MustCompile(`[^ -~]+`)

// line returns the text of an error for a header: one line of printable ASCII, at most 1000 bytes.
func line(err error) string {
	s := notPlain.ReplaceAllString(err.Error(), " ")
	return s[:min(len(s), 1000)]
}

// permissions asks the server for the permissions of this node's login.
func (s *server) permissions() (layout.Permissions, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return s.store.Permissions(ctx)
}

// maySetTimers reports whether this node may set timers, and serve logins that may not.
func (s *server) maySetTimers(login layout.Permissions) bool {
	ns := s.store.Namespace
	return login.MayPublish(layout.TimersOf(ns, "*")) && login.MaySubscribe(layout.LaterSubject(ns, "*"))
}

// mayOperate reports whether this node's login has the permissions of an operator.
func (s *server) mayOperate(login layout.Permissions) bool {
	grants, err := layout.Access{Namespace: s.store.Namespace, Roles: []layout.Role{layout.RoleOperator}, Domain: s.store.Domain()}.Grants()
	if err != nil {
		return false
	}
	for _, g := range grants {
		mayNotPublish := func(subject string) bool { return !login.MayPublish(subject) }
		mayNotSubscribe := func(subject string) bool {
			return !strings.HasPrefix(subject, "_INBOX.") && !login.MaySubscribe(subject)
		}
		if slices.ContainsFunc(g.Publish, mayNotPublish) || slices.ContainsFunc(g.Subscribe, mayNotSubscribe) {
			return false
		}
	}
	return true
}
