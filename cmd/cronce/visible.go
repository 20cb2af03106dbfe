package main

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

// visible is s with everything that a terminal might obey, and not show, written
// as an escape: outputs, errors and names are other people's words, and must not
// move the cursor, change colours or turn the direction of what is read. Lines and
// tabs stay.
func visible(s string) string {
	if !strings.ContainsFunc(s, hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			b.WriteString(`\x` + strconv.FormatUint(uint64(s[i])|0x100, 16)[1:])
		case hidden(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }

// plain is s on one line, as visible has it.
func plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return s // as nearly all of a long table are
	}
	return lines.Replace(visible(s))
}

var lines = strings.NewReplacer("\n", `\n`, "\t", " ")

// visibleJSON writes JSON, in whose strings all that is hidden becomes an escape:
// the encoder leaves what stands behind ASCII as it is. A program reads the same.
type visibleJSON struct{ io.Writer }

func (w visibleJSON) Write(p []byte) (int, error) {
	if !slices.ContainsFunc(p, func(c byte) bool { return c >= 0x7f }) {
		return w.Writer.Write(p) // the encoder has escaped what is below
	}
	s := string(p)
	if strings.ContainsFunc(s, hidden) {
		var b strings.Builder
		for _, r := range s {
			switch {
			case !hidden(r):
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
