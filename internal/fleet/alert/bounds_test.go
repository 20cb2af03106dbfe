package alert_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/core/plans"
	"github.com/cronce-io/cronce/internal/fleet/alert"
	"github.com/cronce-io/cronce/job"
)

// oneAlert is a feed, a registry and a message: it delivers one alert of the job once.
type oneAlert struct {
	jetstream.Msg // for the methods that the deliverer does not call

	job     job.Job
	event   job.Event
	answers chan time.Duration // the delay of the Nak, or 0 for an Ack
	sent    bool

	// silent is what has no leader and does not answer: "registry", "alert states" or nothing.
	silent  string
	request func(*nats.Msg) (*nats.Msg, error)
}

func newAlert(to job.Alert) *oneAlert {
	return &oneAlert{
		job:     job.Job{Name: "report", OnFailure: &to},
		event:   job.Event{V: codec.Version, Kind: job.EventAlert, Job: "report", ID: "report:2026-11-21T07:00:00Z", Alert: job.Failed, Revision: 7},
		answers: make(chan time.Duration, 1),
	}
}

// deliver starts a deliverer, and returns the delay of its Nak, or 0 for an Ack.
func (a *oneAlert) deliver(t *testing.T) time.Duration {
	t.Helper()
	d := alert.New(alert.Config{
		Namespace: job.DefaultNamespace, Registry: a, Now: time.Now, Getenv: func(string) string { return "key" },
		Open:    func(context.Context) (alert.Feed, error) { return a, nil },
		Request: func(_ context.Context, m *nats.Msg) (*nats.Msg, error) { return a.request(m) },
		State: func(ctx context.Context, _ string) (exchange.AlertState, error) {
			return exchange.AlertState{}, a.wait(ctx, "alert states")
		},
		MaxPayload: func() int { return 4 << 10 },
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	defer func() { stop(); <-ended }()
	select {
	case delay := <-a.answers:
		return delay
	case <-time.After(time.Minute):
		t.Error("no answer to the message within a minute, the ack wait of the consumer")
		return 0
	}
}

// wait waits until ctx ends if what is asked is silent.
func (a *oneAlert) wait(ctx context.Context, asked string) error {
	if a.silent == asked {
		<-ctx.Done()
		return errors.Join(job.ErrUnknown, ctx.Err())
	}
	return nil
}

func (a *oneAlert) Each(ctx context.Context, _ int, handle func(jetstream.Msg)) error {
	if !a.sent {
		a.sent = true
		handle(a)
	}
	<-ctx.Done()
	return nil
}

func (a *oneAlert) Lookup(ctx context.Context, _ string, _ uint64) (plans.Entry, error) {
	return plans.Entry{Definition: plans.Definition{Job: a.job}}, a.wait(ctx, "registry")
}

func (a *oneAlert) Alerting() bool { return true }

func (a *oneAlert) Data() []byte {
	data, err := json.Marshal(a.event)
	if err != nil {
		panic(err)
	}
	return data
}

func (a *oneAlert) Subject() string { return "cronce.event.alert.report" }

func (a *oneAlert) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{NumDelivered: 1}, nil
}

func (a *oneAlert) Ack() error                         { a.answers <- 0; return nil }
func (a *oneAlert) NakWithDelay(d time.Duration) error { a.answers <- d; return nil }
func (a *oneAlert) TermWithReason(reason string) error { panic(reason) }

func TestAnAlertWaitsForAsLongAsItsServiceAsks(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]time.Duration{"1": 2 * time.Second, "1800": 30 * time.Minute, "86400": time.Hour} {
		s := newService(t, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", asked)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		if got := newAlert(*webhook(s.URL)).deliver(t); got != want {
			t.Errorf("Retry-After %s: the alert waits for %v, want %v", asked, got, want)
		}
	}
}

func TestAnAlertIsRetriedOnlyIfAStreamAnswersThatItDidNotStoreIt(t *testing.T) {
	t.Parallel()
	for answer, retried := range map[string]bool{
		`{"error":{"code":500,"description":"of the service"}}`:                                 false,
		`{"stream":"A","error":{"code":503,"err_code":10077,"description":"maximum messages"}}`: true,
	} {
		a := newAlert(job.Alert{NATS: &job.AlertNATS{Subject: "alerts.jobs"}})
		a.request = func(*nats.Msg) (*nats.Msg, error) { return &nats.Msg{Data: []byte(answer)}, nil }
		if delay := a.deliver(t); delay > 0 != retried {
			t.Errorf("%s: delay %v, want a retry: %v", answer, delay, retried)
		}
	}
}

// Otherwise each redelivery would add a goroutine, and each of them would send the alert.
func TestAnAlertGoesBackToTheBrokerWithinItsAckWaitWhileTheJobCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	for _, silent := range []string{"registry", "alert states"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAlert(job.Alert{HTTP: &job.AlertHTTP{URL: "http://127.0.0.1:1"}, Format: "pagerduty", KeyEnv: "CRONCE_ALERT_KEY"})
			a.silent = silent
			if delay := a.deliver(t); delay != 2*time.Second {
				t.Errorf("without the %s: the delay is %v, want 2s", silent, delay)
			}
		})
	}
}

func TestACutErrorEndsWithAWholeCharacter(t *testing.T) {
	t.Parallel()
	a := newAlert(job.Alert{NATS: &job.AlertNATS{Subject: "alerts.jobs"}, Template: strings.Repeat("{{.Error}}", 4)})
	a.event.Error = "x" + strings.Repeat("é", 1<<10)
	a.request = func(m *nats.Msg) (*nats.Msg, error) {
		if body := string(m.Data); !strings.HasPrefix(body, "xéé") || strings.Contains(body, "\uFFFD") {
			t.Errorf("body %q", body)
		}
		return &nats.Msg{}, nil
	}
	if delay := a.deliver(t); delay > 0 {
		t.Errorf("not delivered: delay %v", delay)
	}
}
