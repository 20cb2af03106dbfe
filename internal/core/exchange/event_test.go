package exchange_test

import (
	"errors"
	"testing"

	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/job"
)

func TestEventOnAnotherSubjectIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		subject string
		e       job.Event
		good    bool
	}{
		{"cronce.event.failed.mail", job.Event{Kind: job.EventFailed, Job: "mail", ID: "mail:@x"}, true},
		{"cronce.event.fenced._", job.Event{Kind: job.EventFenced, Peer: "b"}, true},
		{"cronce.event.failed.mail", job.Event{Kind: job.EventFailed, ID: "mail:@x"}, true},
		{"cronce.event.failed.mail", job.Event{Kind: job.EventFailed, ID: "payroll:@x"}, false},
		{"cronce.event.alert.mail", job.Event{Kind: job.EventAlert, Job: "payroll", ID: "payroll:@x", Alert: job.Failed}, false},
		{"cronce.event.alert.mail", job.Event{Kind: job.EventAlert, Job: "mail", ID: "payroll:@x", Alert: job.Failed}, false},
		{"cronce.event.failed.mail", job.Event{Kind: job.EventAlert, Job: "mail", ID: "mail:@x", Alert: job.Failed}, false},
		{"cronce.event.failed._", job.Event{Kind: job.EventFailed, ID: "payroll:@x"}, false},
		{"cronce.slot.failed.mail", job.Event{Kind: job.EventFailed, Job: "mail", ID: "mail:@x"}, false},
	} {
		if err := exchange.CheckEventSubject(c.e, c.subject); (err == nil) != c.good || err != nil && !errors.Is(err, exchange.ErrContradicts) {
			t.Errorf("%+v on %s: %v", c.e, c.subject, err)
		}
	}
}
