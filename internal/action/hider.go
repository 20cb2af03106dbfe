package action

import (
	"bytes"
	"io"
)

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
