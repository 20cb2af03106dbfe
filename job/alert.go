package job

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/text/alertbody"
)

// Alert is the destination and the format of an alert. Exactly one of HTTP and NATS is set.
// Every login that can read the registry can read an Alert, so it holds no secrets. It names
// environment variables instead, which the node that sends the alert reads.
type Alert struct {
	HTTP *AlertHTTP `json:"http,omitempty"`
	NATS *AlertNATS `json:"nats,omitempty"`

	// Format is the service whose body format is used: one of AlertFormats. It requires HTTP.
	// For ntfy, the URL is that of a topic. Template writes the body instead: it is a
	// text/template without loops, of up to MaxAlertTemplate bytes. docs/configuration.md lists
	// its fields and functions. If both are empty, the body is the Event as JSON.
	Format   string `json:"format,omitempty"`
	Template string `json:"template,omitempty"`

	// KeyEnv is the name of an environment variable with a secret that the body contains:
	// the integration key of PagerDuty, or .Key of a Template. The name begins with AlertEnv.
	// Empty: none.
	KeyEnv string `json:"key_env,omitempty"`
}

// The values of Event.Alert that are not states of a slot.
const (
	AlertLate      State = alertbody.Late      // the slot has not started in time
	AlertRecovered State = alertbody.Recovered // the first success after a slot failed, expired, was missed or caused an alert of OnLate
	AlertHeartbeat State = "heartbeat"         // Job.Heartbeat is to be called
)

// AlertFormats returns the services that Alert.Format knows.
func AlertFormats() []string { return alertbody.Services() }

// AlertHTTP is a webhook. It receives an alert as a POST request, and the heartbeat of
// Job.Heartbeat as a GET request.
type AlertHTTP struct {
	// URL is absolute, and has no user and password. If the URL itself is a secret, leave
	// it empty and set URLEnv to the name of an environment variable that holds it. The
	// name begins with AlertEnv.
	URL    string `json:"url,omitempty"`
	URLEnv string `json:"url_env,omitempty"`

	// Headers are up to MaxAlertHeaders headers of the request.
	Headers []AlertHeader `json:"headers,omitempty"`
}

// AlertHeader is a header of a webhook's request. Its value is Prefix followed by the value
// of the environment variable Env, whose name begins with AlertEnv. Prefix has at most 256 bytes,
// without control characters.
type AlertHeader struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix,omitempty"`
	Env    string `json:"env"`
}

// AlertNATS publishes the alert on a subject, which has no wildcards and at most 1,024 bytes, and
// does not begin with $.
type AlertNATS struct {
	Subject string `json:"subject"`
}

func (j Job) validateAlerts() error {
	var f faults
	bad := f.add
	f.errs = append(f.errs,
		j.OnFailure.validate("on_failure", Failed, Expired), j.OnMissed.validate("on_missed", Missed), j.OnSuccess.validate("on_success", Succeeded),
		j.OnRecovered.validate("on_recovered", AlertRecovered), j.OnLate.validate("on_late", AlertLate))
	switch {
	case j.OnLate == nil:
		bad(j.LateAfter != 0, "on_late: after %v without a target: want either http or nats", j.LateAfter)
	case !j.Plan().Scheduled():
		bad(true, "on_late: it applies to schedules only, and this job has none")
	default:
		bad(j.LateAfter <= 0 || j.LateAfter > MaxLateAfter, "on_late.after %v: want more than zero, at most %v", j.LateAfter, MaxLateAfter)
	}
	if j.Heartbeat != nil {
		f.errs = append(f.errs, j.Heartbeat.validate("heartbeat"))
		bad(len(j.Heartbeat.Headers) > 0, "heartbeat: headers are not allowed")
	}
	return errors.Join(f.errs...)
}

// validate accepts nil. kinds are the values of Event.Alert that a receives. A template must
// work for each of them.
func (a *Alert) validate(field string, kinds ...State) error {
	switch {
	case a == nil:
		return nil
	case (a.HTTP == nil) == (a.NATS == nil):
		return fmt.Errorf("%w %s: want either http or nats", ErrInvalid, field)
	}
	return errors.Join(a.validateTarget(field), a.validateBody(field, kinds))
}

func (a *Alert) validateBody(field string, kinds []State) error {
	f := faults{prefix: field}
	bad := f.add
	bad(a.Format != "" && !alertbody.IsService(a.Format), ".format %q: want %s", codec.Clip(a.Format), strings.Join(AlertFormats(), ", "))
	bad(a.Format != "" && a.Template != "", ": want either format or template")
	bad(a.Format != "" && a.HTTP == nil, ".format: it needs http")
	bad(a.Format == "pagerduty" && a.KeyEnv == "", ": format pagerduty needs key, the integration key: {env: %sPAGERDUTY}", AlertEnv)
	bad(a.KeyEnv != "" && a.Format == "" && a.Template == "", ".key: it is not used: want format pagerduty, or a template with .Key")
	bad(a.KeyEnv != "" && !isAlertEnv(a.KeyEnv), ".key.env %q: %s", codec.Clip(a.KeyEnv), wantAlertEnv)
	if a.Format == "ntfy" && a.HTTP != nil && a.HTTP.URLEnv == "" {
		_, _, err := alertbody.NtfyTopic(a.HTTP.URL)
		bad(err != nil, ".http.url: %v", err)
	}
	if a.Template != "" {
		err := alertbody.CheckTemplate(a.Template, codec.Strings(kinds...)...)
		bad(err != nil, ".template: %v", err)
	}
	return errors.Join(f.errs...)
}

func (a *Alert) validateTarget(field string) error {
	switch {
	case a.HTTP != nil:
		return a.HTTP.validate(field + ".http")
	case strings.HasPrefix(a.NATS.Subject, "$"):
		return fmt.Errorf("%w %s.nats.subject %q: subjects that begin with $ are reserved for the server", ErrInvalid, field, codec.Clip(a.NATS.Subject))
	}
	return validateSubject(field+".nats.subject", a.NATS.Subject, false)
}

func (h *AlertHTTP) validate(field string) error {
	f := faults{prefix: field}
	bad := f.add
	if h.URLEnv == "" {
		_, err := codec.ParseURL(h.URL)
		bad(err != nil, ".url: %v", err)
	} else {
		bad(h.URL != "", ".url: want text or {env: NAME}, not both")
		bad(!isAlertEnv(h.URLEnv), ".url.env %q: %s", codec.Clip(h.URLEnv), wantAlertEnv)
	}
	bad(len(h.Headers) > MaxAlertHeaders, ".headers: %d, at most %d", len(h.Headers), MaxAlertHeaders)
	for i, header := range h.Headers {
		why := codec.RefusedHeader(header.Name)
		bad(why != "", ".headers: header %q %s", codec.Clip(header.Name), why)
		bad(slices.ContainsFunc(h.Headers[:i], func(o AlertHeader) bool { return strings.EqualFold(o.Name, header.Name) }),
			".headers: %q is listed twice: header names are not case-sensitive", codec.Clip(header.Name))
		bad(!isAlertEnv(header.Env), ".headers.%s.env %q: %s", codec.Clip(header.Name), codec.Clip(header.Env), wantAlertEnv)
		bad(len(header.Prefix) > 256 || hasControl(header.Prefix), ".headers.%s.prefix: want at most 256 bytes, without control characters", codec.Clip(header.Name))
	}
	return errors.Join(f.errs...)
}

const wantAlertEnv = "want the name of an environment variable that begins with " + AlertEnv + ": an alert may use no other"

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)

func isAlertEnv(name string) bool {
	return strings.HasPrefix(name, AlertEnv) && envName.MatchString(name)
}
