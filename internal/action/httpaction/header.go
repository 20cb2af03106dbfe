package httpaction

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/cronce-io/cronce/internal/action"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// header is a configured header. secret is the value of its environment variable.
type header struct {
	spec.Header
	secret string
}

func newHeaders(configured []spec.Header, getenv func(string) string) ([]header, error) {
	headers := make([]header, len(configured))
	for i, h := range configured {
		headers[i] = header{h, ""}
		if h.Env == "" {
			continue
		}
		secret, err := checked(getenv(h.Env))
		if err != nil {
			return nil, fmt.Errorf("header %s: environment variable %s %w", h.Name, h.Env, err)
		}
		headers[i].secret = secret
	}
	return headers, nil
}

// readHeaders returns the current values of the headers, and the parts of them that must not
// be shown.
func readHeaders(headers []header) (values http.Header, secrets []string, err error) {
	values = http.Header{}
	for _, h := range headers {
		value := h.Value
		if h.Env != "" || h.File != "" {
			secret := h.secret
			if h.File != "" {
				if secret, err = readSecret(h.File); err != nil {
					return nil, nil, fmt.Errorf("header %s: %w", h.Name, err)
				}
			}
			value = h.Prefix + secret
			secrets = append(secrets, action.Secret(secret)...)
		}
		values[h.Name] = []string{value}
	}
	return values, secrets, nil
}

func readSecret(path string) (string, error) {
	text, err := action.ReadFile(path, spec.MaxHeader)
	if err != nil {
		return "", err
	}
	secret, err := checked(text)
	if err != nil {
		return "", fmt.Errorf("file %s %w", path, err)
	}
	return secret, nil
}

// checked returns the text without the line break that editors add at its end. It returns an error
// if a header cannot have the text. The error does not show the text.
func checked(secret string) (string, error) {
	secret = strings.TrimSpace(secret)
	switch {
	case secret == "":
		return "", errors.New("is not set, or empty")
	case len(secret) > spec.MaxHeader:
		return "", fmt.Errorf("has more than %d bytes", spec.MaxHeader)
	case strings.ContainsFunc(secret, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return "", errors.New("has a line break or another control character, which a header cannot have")
	}
	return secret, nil
}
