// Package printable prepares foreign text, which comes from the broker or from a handler, for
// terminals, logs and pages. Control characters become escapes, and long texts are cut.
package printable

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with an escape for every Hidden character. Outputs, errors and names are
// foreign text: they must not move the cursor, change colours or the direction of text.
func Text(s string) string {
	if !strings.ContainsFunc(s, Hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case Hidden(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Hidden reports whether a terminal may obey r instead of showing it. Newlines and tabs are not
// hidden.
func Hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// Line returns Text(s) on one line.
func Line(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return s // the common case in a long table
	}
	return lines.Replace(Text(s))
}

// Clip returns at most the first most bytes of s, as Line writes them. If it has cut the text, the
// result ends in "...".
func Clip(s string, most int) string {
	cut := len(s) > most
	if cut {
		s = strings.ToValidUTF8(s[:most], "")
	}
	if s = Line(s); len(s) > 2*most { // escapes are longer than what they stand for
		s, cut = strings.ToValidUTF8(s[:2*most], ""), true
	}
	if cut {
		s += "..."
	}
	return s
}

var lines = strings.NewReplacer("\n", `\n`, "\t", " ")

// JSON is a writer of encoded JSON. It replaces the hidden characters in strings with JSON
// escapes, since the encoder writes those above ASCII as they are. A program that decodes the
// JSON gets the same value.
type JSON struct{ io.Writer }

func (w JSON) Write(p []byte) (int, error) {
	if !slices.ContainsFunc(p, func(c byte) bool { return c >= 0x7f }) {
		return w.Writer.Write(p) // the encoder has escaped control characters of ASCII
	}
	s := string(p)
	if strings.ContainsFunc(s, Hidden) {
		var b strings.Builder
		for _, r := range s {
			switch {
			case !Hidden(r):
				b.WriteRune(r)
			case r > 0xffff:
				high, low := utf16.EncodeRune(r)
				fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
			default:
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		}
		s = b.String()
	}
	if _, err := io.WriteString(w.Writer, s); err != nil {
		return 0, err
	}
	return len(p), nil
}
