package job

import (
	"errors"
	"fmt"
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
		_, err := codec.ParseURL(h.URL)
		bad(err != nil, ".url: %v", err)
	} else {
		bad(h.URL != "", ".url: want text or {env: NAME}, not both")
		bad(!alertEnv(h.URLEnv), ".url.env %q: %s", codec.Clip(h.URLEnv), wantAlertEnv)
	}
	bad(len(h.Headers) > MaxAlertHeaders, ".headers: %d, at most %d", len(h.Headers), MaxAlertHeaders)
	for i, header := range h.Headers {
		why := codec.RefusedHeader(header.Name)
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
