// Package printable prepares other people's words for a screen and a log: what a
// terminal would obey becomes an escape, and what would fill the screen is cut. What is
// stored on the broker, and what handlers write, is shown through here and nowhere else.
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

// Text is s with everything that a terminal might obey, and not show, written
// as an escape: outputs, errors and names are other people's words, and must not
// move the cursor, change colours or turn the direction of what is read. Lines and
// tabs stay.
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

// Hidden reports whether a terminal may obey r and not show it.
func Hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// Line is s on one line, as Text has it.
func Line(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return s // as nearly all of a long table are
	}
	return lines.Replace(Text(s))
}

// Clip is at most the first bytes of s, as many as are asked for, on one line as Text has
// it. What was cut ends in "...".
func Clip(s string, most int) string {
	cut := len(s) > most
	if cut {
		s = strings.ToValidUTF8(s[:most], "")
	}
	if s = Line(s); len(s) > 2*most { // escapes are longer than what they stand for
		s, cut = s[:2*most], true
	}
	if cut {
		s += "..."
	}
	return s
}

var lines = strings.NewReplacer("\n", `\n`, "\t", " ")

// JSON writes JSON, in whose strings all that is hidden becomes an escape:
// the encoder leaves what stands behind ASCII as it is. A program reads the same.
type JSON struct{ io.Writer }

func (w JSON) Write(p []byte) (int, error) {
	if !slices.ContainsFunc(p, func(c byte) bool { return c >= 0x7f }) {
		return w.Writer.Write(p) // the encoder has escaped what is below
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
