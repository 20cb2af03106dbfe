package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const (
	// sessionCookie holds a browser's session. loginCookie holds the secret of a login at the
	// OpenID provider, and the page to go to afterwards.
	sessionCookie = "cronce_session"
	loginCookie   = "cronce_login"

	// sessionTime is how long a login lasts.
	sessionTime = 12 * time.Hour

	// loginTime is how long a person may take at the OpenID provider.
	loginTime = 10 * time.Minute
)

// session is what the cookie holds, signed.
type session struct {
	User string    `json:"user"`
	By   string    `json:"by"` // "token" or "oidc": whose key signed it
	Ends time.Time `json:"ends"`
}

// seal signs a session. The key is the user's token, or the secret of the client.
func (s session) seal(key string) string {
	data, err := json.Marshal(s)
	if err != nil {
		return "" // strings and a time can always be encoded
	}
	body := base64.RawURLEncoding.EncodeToString(data)
	return body + "." + base64.RawURLEncoding.EncodeToString(sign(key, body))
}

func sign(key, body string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("cronce session 1\n" + body))
	return mac.Sum(nil)
}

// unseal returns the session if its signature is valid and it has not expired. key returns the
// key with which a session must be signed; its argument is not verified yet.
func unseal(sealed string, key func(session) string, now time.Time) (session, error) {
	var s session
	body, mark, _ := strings.Cut(sealed, ".")
	data, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return session{}, errors.New("session: not one of this server")
	}
	k := key(s)
	got, err := base64.RawURLEncoding.DecodeString(mark)
	switch {
	case err != nil || k == "" || !hmac.Equal(got, sign(k, body)):
		return session{}, errors.New("session: not one of this server")
	case !now.Before(s.Ends):
		return session{}, errors.New("session: it has expired")
	}
	return s, nil
}

// sessions identifies users by their cookie. A cookie that is not valid counts as none, so
// that the browser gets the login page.
type sessions struct {
	tokens *tokens
	oidc   Provider
}

func (m sessions) user(r *http.Request) (string, error) {
	c, err := r.Cookie(sessionCookie)
	if err != nil {
		return "", nil
	}
	s, err := unseal(c.Value, m.key, time.Now())
	if err != nil {
		return "", nil
	}
	return s.User, nil
}

func (m sessions) key(s session) string {
	switch {
	case s.By == "token" && m.tokens != nil:
		return m.tokens.file.Get()[s.User]
	case s.By == "oidc" && m.oidc != nil:
		return m.oidc.Key()
	}
	return ""
}

// bearers identifies programs by an ID token of the provider.
type bearers struct{ oidc Provider }

// errProvider means that the OpenID provider did not answer.
var errProvider = errors.New("the OpenID provider does not answer")

// Unreachable marks an error of a Provider: the provider could not be reached, so the credentials
// were not checked.
func Unreachable(err error) error { return fmt.Errorf("%w: %w", errProvider, err) }

func (m bearers) user(r *http.Request) (string, error) {
	token, ok := bearer(r)
	if !ok || strings.Count(token, ".") != 2 {
		return "", nil // not a JWT
	}
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	return m.oidc.Bearer(ctx, token)
}
