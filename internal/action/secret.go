package action

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/text/plain"
)

// Secret returns the forms in which a service may repeat a secret: as it is, quoted as in
// JSON and errors, with slashes escaped as by PHP, and as part of a URL.
func Secret(secret string) []string {
	inner := func(quoted string) string { return quoted[1 : len(quoted)-1] }
	quoted := inner(strconv.Quote(secret))
	escaped, _ := json.Marshal(secret) // never fails for a string
	forms := []string{secret, quoted, inner(string(escaped)), strings.ReplaceAll(quoted, "/", `\/`), url.QueryEscape(secret)}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// URLSecrets returns the secret parts of a URL, in the forms in which they are sent: the
// password, and the query, which often contains a key.
func URLSecrets(u *url.URL) (secrets []string) {
	if u.RawQuery != "" {
		secrets = append(secrets, "?"+u.RawQuery)
	}
	if u.User == nil {
		return secrets
	}
	secret, _ := u.User.Password()
	basic := base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + secret))
	if secret == "" {
		secret = u.User.Username() // some services take a key as the user name
	}
	if secret == "" {
		return secrets
	}
	return append(append(secrets, Secret(basic)...), Secret(secret)...)
}

// ReadFile returns the content of a file with a secret, without a byte order mark. It must be a regular
// file of at most limit bytes. Errors do not show the content.
func ReadFile(path string, limit int) (string, error) {
	// Opening a named pipe would block until it has a writer.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 2*int64(limit)+1)) // text in UTF-16 has two bytes for each character
	if err == nil {
		data, err = plain.Unmarked(data)
	}
	if err == nil && len(data) > limit {
		err = fmt.Errorf("file %s has more than %d bytes", path, limit)
	}
	return string(data), err
}

// hiddenError is an error whose text has no secrets.
type hiddenError struct {
	text string
	err  error
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }

// Hidden returns err without secrets in its text. A service that answers with garbage may
// have sent back the request.
func Hidden(err error, secrets []string) error {
	var shown strings.Builder
	hider := NewHider(&shown, secrets)
	_, _ = hider.Write([]byte(err.Error())) // a Builder never fails
	_ = hider.End()
	if shown.String() == err.Error() {
		return err
	}
	return &hiddenError{shown.String(), err}
}

// placeholder replaces secrets.
const placeholder = "[hidden]"

// Hider writes text to a writer without the secrets in it, while the text arrives. It holds back
// what may be the beginning of a secret.
type Hider struct {
	out     io.Writer
	secrets [][]byte
	hold    int // the length of the longest secret, minus 1

	text   []byte // the end of the text so far; the first wrote bytes of it are written
	wrote  int    // at most hold
	inside bool   // the last written byte was part of a secret
}

// NewHider returns a Hider that writes to out.
func NewHider(out io.Writer, secrets []string) *Hider {
	h := &Hider{out: out}
	for _, s := range secrets {
		if s != "" {
			h.secrets, h.hold = append(h.secrets, []byte(s)), max(h.hold, len(s)-1)
		}
	}
	return h
}

// Write takes text. It returns the error of the writer.
func (h *Hider) Write(p []byte) (int, error) {
	h.text = append(h.text, p...)
	return len(p), h.pass(max(h.wrote, len(h.text)-h.hold))
}

// End writes the bytes that are held back. Call it only if the text is complete: if it was cut
// off, these bytes may be the beginning of a secret, and must be dropped.
func (h *Hider) End() error { return h.pass(len(h.text)) }

// pass writes the text up to end. All secrets that have a byte before end are in h.text, whole.
func (h *Hider) pass(end int) error {
	secret := make([]bool, len(h.text))
	for _, s := range h.secrets {
		for from := 0; ; from++ {
			at := bytes.Index(h.text[from:], s)
			if at < 0 {
				break
			}
			from += at
			for i := range s {
				secret[from+i] = true
			}
		}
	}
	plain := make([]byte, 0, end-h.wrote)
	for i := h.wrote; i < end; i++ {
		switch {
		case !secret[i]:
			plain = append(plain, h.text[i])
		case !h.inside:
			plain = append(plain, placeholder...)
		}
		h.inside = secret[i]
	}
	keep := max(0, end-h.hold)
	h.text, h.wrote = append(h.text[:0], h.text[keep:]...), end-keep
	_, err := h.out.Write(plain)
	return err
}
