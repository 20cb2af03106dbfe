package job

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// Alert is where to tell of a slot that did not go well: one of its members is set.
// It stands in the registry, for all to read: it holds no secret, only the names of
// environment variables of the node that delivers.
type Alert struct {
	HTTP *AlertHTTP `json:"http,omitempty"`
	NATS *AlertNATS `json:"nats,omitempty"`
}

// AlertHTTP is a webhook. It is sent a POST.
type AlertHTTP struct {
	// URL is absolute, without user and password. Empty: URLEnv names the
	// environment variable that holds it, for one that is a secret itself.
	URL    string `json:"url,omitempty"`
	URLEnv string `json:"url_env,omitempty"`

	Headers []AlertHeader `json:"headers,omitempty"`
}

// AlertHeader is a header whose value is Prefix and then what the environment
// variable Env holds.
type AlertHeader struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix,omitempty"`
	Env    string `json:"env"`
}

// AlertNATS is a subject, which can be published to.
type AlertNATS struct {
	Subject string `json:"subject"`
}

// AlertEnv begins the names of all environment variables that an alert may name.
// Who may write the registry must not be able to have any other secret of a node
// sent to where they please.
const AlertEnv = "CRONCE_ALERT_"

// MaxAlertHeaders is how many headers a webhook may have.
const MaxAlertHeaders = 20

// AlertAbout is where to tell of a slot that has ended so; nil: nowhere.
func (j Job) AlertAbout(s State) *Alert {
	switch s {
	case Failed, Expired:
		return j.OnFailure
	case Missed:
		return j.OnMissed
	}
	return nil
}

// validate says what is wrong with it; nil is right.
func (a *Alert) validate(field string) error {
	switch {
	case a == nil:
		return nil
	case (a.HTTP == nil) == (a.NATS == nil):
		return fmt.Errorf("%w %s: want either http or nats", ErrInvalid, field)
	case a.HTTP != nil:
		return a.HTTP.validate(field + ".http")
	case strings.HasPrefix(a.NATS.Subject, "$"):
		return fmt.Errorf("%w %s.nats.subject %q: what begins with $ belongs to the server", ErrInvalid, field, codec.Clip(a.NATS.Subject))
	}
	return validateSubject(field+".nats.subject", a.NATS.Subject, false)
}

func (h *AlertHTTP) validate(field string) error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf("%w %s%s", ErrInvalid, field, fmt.Sprintf(format, args...)))
		}
	}
	if h.URLEnv == "" {
		_, err := ParseAlertURL(h.URL)
		bad(err != nil, ".url: %v", err)
	} else {
		bad(h.URL != "", ".url: want text or {env: NAME}, not both")
		bad(!alertEnv(h.URLEnv), ".url.env %q: %s", codec.Clip(h.URLEnv), wantAlertEnv)
	}
	bad(len(h.Headers) > MaxAlertHeaders, ".headers: %d, at most %d", len(h.Headers), MaxAlertHeaders)
	for i, header := range h.Headers {
		why := RefusedHeader(header.Name)
		bad(why != "", ".headers: header %q %s", codec.Clip(header.Name), why)
		bad(slices.ContainsFunc(h.Headers[:i], func(o AlertHeader) bool { return strings.EqualFold(o.Name, header.Name) }),
			".headers: %q is here twice: upper and lower case make no difference", codec.Clip(header.Name))
		bad(!alertEnv(header.Env), ".headers.%s.env %q: %s", codec.Clip(header.Name), codec.Clip(header.Env), wantAlertEnv)
		bad(len(header.Prefix) > 256 || hasControl(header.Prefix), ".headers.%s.prefix: want at most 256 bytes, without control characters", codec.Clip(header.Name))
	}
	return errors.Join(errs...)
}

const wantAlertEnv = "want the name of an environment variable that begins with " + AlertEnv + ": an alert may use no other"

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,255}$`)

func alertEnv(name string) bool {
	return strings.HasPrefix(name, AlertEnv) && envName.MatchString(name)
}

// ParseAlertURL reads the URL of a webhook. Its errors do not show it.
func ParseAlertURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(s) > 4<<10:
		return nil, errors.New("want a URL like https://example.com/alerts")
	case u.User != nil:
		return nil, errors.New("it holds a user or a password, which the registry would show: use headers, with {env: NAME}")
	case strings.Contains(s, "#"):
		return nil, errors.New("a fragment is never sent: leave out what begins with #")
	}
	return u, nil
}

var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// protocolHeaders belong to the connection or the message's framing: set by a
// job, they would let it say one thing and send another.
var protocolHeaders = []string{
	"Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// ownHeaders tell of the slot, as do all that begin with Cronce-.
var ownHeaders = []string{"Idempotency-Key", "Traceparent", "Tracestate"}

// RefusedHeader says what is wrong with the name of a header of a request, in its
// canonical case; empty: nothing.
func RefusedHeader(name string) string {
	is := func(other string) bool { return strings.EqualFold(name, other) }
	switch {
	case !headerName.MatchString(name):
		return "is no name of a header: want letters, digits and -"
	case is("Host"):
		return "is part of the url: put it there"
	case slices.ContainsFunc(protocolHeaders, is):
		return "belongs to the connection: leave it out"
	case slices.ContainsFunc(ownHeaders, is) || len(name) >= 7 && strings.EqualFold(name[:7], "Cronce-"):
		return "is set for each slot: leave it out"
	}
	return ""
}
