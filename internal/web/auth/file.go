package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
	"golang.org/x/sync/semaphore"

	"github.com/cronce-io/cronce/internal/text/plain"
	"github.com/cronce-io/cronce/internal/web/reload"
)

var errWrong = errors.New("wrong credentials")

// lines calls f for each line of a file that is neither empty nor a comment. The errors name
// the file and the number of the line, and never quote the line, since it holds a secret.
func lines(path string, f func(line string) error) error {
	const most = 1 << 20
	data, err := os.ReadFile(path)
	if err == nil && len(data) > most {
		err = fmt.Errorf("%s has more than 1 MiB", path)
	}
	if err != nil {
		return err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if line = strings.TrimSpace(plain.Line(line)); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := f(line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
	}
	return nil
}

// tokens are the bearer tokens of a file, by user.
type tokens struct {
	file *reload.Value[map[string]string]
}

// tokenForm matches tokens that a header can carry (RFC 6750) and that are too long to guess.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9._~+/-]{16,512}=*$`)

func newTokens(cfg Config) (*tokens, error) {
	file, err := reload.New(cfg.Logger, func() (map[string]string, error) { return readTokens(cfg.TokenFile) }, cfg.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("--http-token-file: %w", err)
	}
	return &tokens{file}, nil
}

// readTokens reads lines like USER:TOKEN, or a single TOKEN whose user is "token".
func readTokens(path string) (map[string]string, error) {
	byUser := map[string]string{}
	err := lines(path, func(line string) error {
		name, token, named := strings.Cut(line, ":")
		if !named {
			name, token = "token", line
		}
		switch {
		case !tokenForm.MatchString(token):
			return errors.New("want USER:TOKEN or TOKEN, where TOKEN is 16 to 512 of the characters A-Z a-z 0-9 . _ ~ + / -")
		case byUser[name] != "":
			return fmt.Errorf("user %q has a token already", name)
		}
		byUser[name] = token
		return checkUser(name)
	})
	if err == nil && len(byUser) == 0 {
		err = fmt.Errorf("%s holds no token", path)
	}
	return byUser, err
}

func (t *tokens) user(r *http.Request) (string, error) {
	token, ok := bearer(r)
	if !ok {
		return "", nil
	}
	name := t.owner(token)
	if name == "" {
		return "", fmt.Errorf("bearer token: %w", errWrong)
	}
	return name, nil
}

// owner returns the user of a token, or "". It compares the hash of the token with those of all users,
// so that the time it takes reveals nothing about the tokens.
func (t *tokens) owner(token string) (name string) {
	got := sha256.Sum256([]byte(token))
	for user, want := range t.file.Get() {
		want := sha256.Sum256([]byte(want))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			name = user
		}
	}
	return name
}

func bearer(r *http.Request) (token string, ok bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// passwords are the users of an htpasswd file.
type passwords struct {
	file  *reload.Value[map[string][]byte]
	limit *semaphore.Weighted // bounds the hashes that are being computed
	salt  [32]byte
	dummy []byte // stands in for the hash of an unknown user

	mu    sync.Mutex
	known map[string][32]byte // by user: the key of the last login that succeeded
}

// maxHashing bounds the passwords that are hashed at once: each takes 50 ms of a core.
const maxHashing = 2

// newPasswords reads a file of bcrypt hashes.
func newPasswords(cfg Config) (*passwords, error) {
	file, err := reload.New(cfg.Logger, func() (map[string][]byte, error) { return readPasswords(cfg.BasicFile) }, cfg.BasicFile)
	if err != nil {
		return nil, fmt.Errorf("--http-basic-file: %w", err)
	}
	p := &passwords{file: file, limit: semaphore.NewWeighted(maxHashing), known: map[string][32]byte{}}
	if _, err := rand.Read(p.salt[:]); err != nil {
		return nil, err
	}
	p.dummy, err = bcrypt.GenerateFromPassword([]byte("unused"), bcrypt.DefaultCost)
	return p, err
}

func readPasswords(path string) (map[string][]byte, error) {
	byUser := map[string][]byte{}
	err := lines(path, func(line string) error {
		name, hash, _ := strings.Cut(line, ":")
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return errors.New("want USER:HASH with a bcrypt hash, which begins with $2: make it with htpasswd -B")
		}
		if byUser[name] != nil {
			return fmt.Errorf("user %q has a password already", name)
		}
		byUser[name] = []byte(hash)
		return checkUser(name)
	})
	if err == nil && len(byUser) == 0 {
		err = fmt.Errorf("%s holds no user", path)
	}
	return byUser, err
}

func (p *passwords) user(r *http.Request) (string, error) {
	name, password, ok := r.BasicAuth()
	if !ok {
		return "", nil
	}
	hash, exists := p.file.Get()[name]
	if !exists {
		hash = p.dummy // so that the time does not reveal which users exist
	}
	key := p.key(name, password, hash)
	p.mu.Lock()
	known, ok := p.known[name]
	p.mu.Unlock()
	if ok && known == key {
		return name, nil
	}
	if err := p.compare(r.Context(), hash, password); err != nil || !exists {
		return "", fmt.Errorf("password of %q: %w", name, errWrong)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[name] = key
	return name, nil
}

func (p *passwords) compare(ctx context.Context, hash []byte, password string) error {
	if err := p.limit.Acquire(ctx, 1); err != nil {
		return err
	}
	defer p.limit.Release(1)
	return bcrypt.CompareHashAndPassword(hash, []byte(password))
}

// key identifies a login: a salted hash of the user, the password and the stored hash.
func (p *passwords) key(name, password string, hash []byte) [32]byte {
	h := sha256.New()
	h.Write(p.salt[:])
	for _, part := range [][]byte{[]byte(name), []byte(password), hash} {
		sum := sha256.Sum256(part)
		h.Write(sum[:])
	}
	return [32]byte(h.Sum(nil))
}

// proxy identifies users by a header that a trusted proxy sets.
type proxy struct {
	header string
	from   []netip.Prefix
}

func (p proxy) user(r *http.Request) (string, error) {
	names := r.Header.Values(p.header)
	if len(names) == 0 {
		return "", nil
	}
	if !p.trusts(r.RemoteAddr) {
		return "", fmt.Errorf("header %s: %s is not a trusted proxy", p.header, r.RemoteAddr)
	}
	if len(names) > 1 {
		return "", errors.New("header " + p.header + " is given twice: the proxy must replace what a client sends")
	}
	return names[0], nil
}

func (p proxy) trusts(remote string) bool {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.from, func(from netip.Prefix) bool { return from.Contains(at.Addr().Unmap()) })
}
