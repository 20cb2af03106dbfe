// Package oidc logs people in at an OpenID Connect provider, with the authorization code
// flow, PKCE, a state and a nonce. Only the binary links it.
//
// A Provider reads its configuration when it is first used, and not when the process starts: a node
// must be able to start while the provider is down. The provider decides which users may log in at
// this client.
package oidc

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/cronce-io/cronce/internal/text/plain"
	"github.com/cronce-io/cronce/internal/web/auth"
)

// patience bounds a request to the provider.
const patience = 10 * time.Second

// Provider is an OpenID provider. It is safe for concurrent use.
type Provider struct {
	issuer, client, secret string
	http                   *http.Client

	mu   sync.Mutex
	real *oidc.Provider
}

// New checks the settings and reads the file with the client's secret.
func New(issuer, client, secretFile string) (*Provider, error) {
	u, err := url.Parse(issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(u.Scheme == "http" && auth.Loopback(net.JoinHostPort(u.Hostname(), "0"))) {
		return nil, fmt.Errorf("invalid --oidc-issuer %q: want a URL like https://login.example.com", issuer)
	}
	if client == "" || secretFile == "" {
		return nil, errors.New("--oidc-issuer needs --oidc-client-id and --oidc-client-secret-file")
	}
	data, err := os.ReadFile(secretFile)
	if err == nil {
		data, err = plain.Unmarked(data)
	}
	if err != nil {
		return nil, fmt.Errorf("--oidc-client-secret-file: %w", err)
	}
	secret := strings.TrimSpace(string(data))
	const least = 16 // sessions are signed with the secret
	if len(secret) < least {
		return nil, fmt.Errorf("--oidc-client-secret-file: the secret in %s has %d bytes: want at least %d", secretFile, len(secret), least)
	}
	return &Provider{issuer: issuer, client: client, secret: secret, http: &http.Client{Timeout: patience}}, nil
}

// Key implements auth.Provider.
func (p *Provider) Key() string { return p.secret }

// provider returns the provider's configuration. It reads the configuration at the first call, and
// again at the next one if that failed.
func (p *Provider) provider(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.real != nil {
		return p.real, nil
	}
	real, err := oidc.NewProvider(p.with(ctx), p.issuer)
	if err != nil {
		return nil, auth.Unreachable(err)
	}
	p.real = real
	return real, nil
}

func (p *Provider) with(ctx context.Context) context.Context { return oidc.ClientContext(ctx, p.http) }

func (p *Provider) flow(real *oidc.Provider, redirect string) *oauth2.Config {
	return &oauth2.Config{
		ClientID: p.client, ClientSecret: p.secret, Endpoint: real.Endpoint(), RedirectURL: redirect,
		Scopes: []string{oidc.ScopeOpenID, "profile", "email"},
	}
}

// Begin implements auth.Provider. The secret of a login is its state, its nonce and its verifier.
func (p *Provider) Begin(ctx context.Context, redirect string) (location, secret string, err error) {
	real, err := p.provider(ctx)
	if err != nil {
		return "", "", err
	}
	state, nonce, verifier := rand.Text(), rand.Text(), oauth2.GenerateVerifier()
	location = p.flow(real, redirect).AuthCodeURL(state, oidc.Nonce(nonce), oauth2.S256ChallengeOption(verifier))
	return location, state + "." + nonce + "." + verifier, nil
}

// Finish implements auth.Provider.
func (p *Provider) Finish(ctx context.Context, redirect, secret string, answer url.Values) (user string, err error) {
	parts := strings.Split(secret, ".")
	if len(parts) != 3 {
		return "", errors.New("the login cookie was not set by this server")
	}
	state, nonce, verifier := parts[0], parts[1], parts[2]
	if subtle.ConstantTimeCompare([]byte(state), []byte(answer.Get("state"))) != 1 {
		return "", errors.New("the state of the answer is not that of the login: this browser did not begin it")
	}
	if code := answer.Get("error"); code != "" {
		return "", fmt.Errorf("the provider refused: %q: %q", code, answer.Get("error_description"))
	}
	real, err := p.provider(ctx)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tokens, err := p.flow(real, redirect).Exchange(p.with(ctx), answer.Get("code"), oauth2.VerifierOption(verifier))
	switch {
	case isAway(err):
		return "", auth.Unreachable(err)
	case err != nil:
		return "", fmt.Errorf("exchange the code: %w", err)
	}
	raw, ok := tokens.Extra("id_token").(string)
	if !ok {
		return "", errors.New("the provider sent no ID token")
	}
	id, err := p.verify(ctx, real, raw)
	if err != nil {
		return "", err
	}
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(id.Nonce)) != 1 {
		return "", errors.New("the nonce of the ID token is not that of the login")
	}
	return name(id)
}

// isAway reports whether the provider did not answer, or answered that it cannot now.
func isAway(err error) bool {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return true
	}
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	return ok && answer.Response.StatusCode >= http.StatusInternalServerError
}

// Bearer implements auth.Provider.
func (p *Provider) Bearer(ctx context.Context, token string) (user string, err error) {
	real, err := p.provider(ctx)
	if err != nil {
		return "", err
	}
	id, err := p.verify(ctx, real, token)
	if err != nil {
		return "", err
	}
	return name(id)
}

// verify checks signature, issuer, audience and expiry. It reads the provider's keys again if they
// were rotated.
func (p *Provider) verify(ctx context.Context, real *oidc.Provider, raw string) (*oidc.IDToken, error) {
	id, err := real.Verifier(&oidc.Config{ClientID: p.client}).Verify(ctx, raw)
	switch {
	case err == nil:
		return id, nil
	case strings.Contains(err.Error(), ": fetching keys "): // go-oidc has no type for it
		return nil, auth.Unreachable(err)
	}
	return nil, fmt.Errorf("verify the ID token: %w", err)
}

// name returns the name of the person in records and events: the verified email address, else the
// user name, else the subject.
func name(id *oidc.IDToken) (string, error) {
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
		User     string `json:"preferred_username"`
	}
	if err := id.Claims(&claims); err != nil {
		return "", fmt.Errorf("read the claims of the ID token: %w", err)
	}
	if !claims.Verified {
		claims.Email = ""
	}
	return cmp.Or(claims.Email, claims.User, id.Subject), nil
}
