package job

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// Alert is where an alert is sent: exactly one member is set. Everyone who can read the
// registry can read it, so it holds no secrets. It names environment variables instead, which
// are read on the node that sends the alert.
type Alert struct {
	HTTP *AlertHTTP `json:"http,omitempty"`
	NATS *AlertNATS `json:"nats,omitempty"`
}

// AlertHTTP is a webhook that receives the alert as a POST request.
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
// of the environment variable Env, whose name begins with AlertEnv.
type AlertHeader struct {
	Name   string `json:"name"`
	Prefix string `json:"prefix,omitempty"`
	Env    string `json:"env"`
}

// AlertNATS publishes the alert on a subject, which has no wildcards.
type AlertNATS struct {
	Subject string `json:"subject"`
}

// validate accepts nil.
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
