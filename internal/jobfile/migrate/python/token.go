package python

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the kind of a token.
type tokenKind int

const (
	space   tokenKind = iota // or a comment, or a line break after a backslash; scan leaves it out
	newline                  // of a statement: outside of brackets
	text                     // a string; token.value is its value
	number
	name
	symbol // an operator or a bracket
	other  // an unknown character, or a string that is not a literal of text, such as f"..." or b"..."
	end    // of the file
)

type token struct {
	kind  tokenKind
	value string
	at    int // its first byte in the source
	to    int // the byte after it
	line  int // from 1
}

// forms has a group for each form of a token, and kinds the kind of each group. Operators of more than
// one character come first: the = of "==" is not an assignment.
var (
	forms = regexp.MustCompile(`(?s)^(?:([ \t\r\f]+|#[^\n]*|\\\r?\n)|(\n)` +
		`|([rRbBuUfFtT]{0,2}(?:"""(?:\\.|[^\\])*?"""|'''(?:\\.|[^\\])*?'''))|([rRbBuUfFtT]{0,2}(?:"""|''').*)` +
		`|([rRbBuUfFtT]{0,2}(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))|([rRbBuUfFtT]{0,2}["'](?:\\.|[^\\\n])*)` +
		`|(0[xX][\pL\p{Nd}_.]*|\.?[0-9](?:[eE][-+]|[\pL\p{Nd}_.])*)|([\pL_][\pL\p{Nd}_]*)` +
		`|(\*\*=|//=|>>=|<<=|[-=!<>+*/%&|^:]=|->|\*\*|//|<<|>>|[!-~])|(.))`)
	kinds = []tokenKind{space, newline, text, other, text, other, number, name, symbol, other}
)

// scan splits a program into tokens. It never fails: a string that does not end is a token of the kind
// other, and so is an unknown character.
func scan(source string) (tokens []token) {
	line, depth := 1, 0 // of brackets
	for at := 0; at < len(source); {
		groups := forms.FindStringSubmatchIndex(source[at:])
		group := 1
		for groups[2*group] < 0 {
			group++
		}
		t := token{kind: kinds[group-1], value: source[at : at+groups[1]], at: at, to: at + groups[1], line: line}
		at, line = t.to, line+strings.Count(t.value, "\n")
		switch t.kind {
		case text:
			var ok bool
			if t.value, ok = unquote(t.value); !ok {
				t.kind = other
			}
		case symbol:
			if strings.Contains("([{", t.value) {
				depth++
			} else if strings.Contains(")]}", t.value) {
				depth = max(0, depth-1)
			}
		}
		if t.kind != space && (t.kind != newline || depth == 0) {
			tokens = append(tokens, t)
		}
	}
	for _, kind := range []tokenKind{newline, end} {
		tokens = append(tokens, token{kind: kind, at: len(source), to: len(source), line: line})
	}
	return tokens
}

var (
	escape  = regexp.MustCompile(`(?s)\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)`)
	escapes = map[string]string{`\\`: `\`, `\'`: "'", `\"`: `"`, `\a`: "\a", `\b`: "\b", `\f`: "\f", `\n`: "\n", `\r`: "\r", `\t`: "\t", `\v`: "\v", "\\\n": ""}
)

// unquote returns the value of a string. ok is false if it is not a literal of text, or has an escape
// whose value is not known, like that of \N{...}.
func unquote(literal string) (value string, ok bool) {
	quoted := strings.TrimLeft(literal, "rRbBuUfFtT")
	prefix := strings.ToLower(strings.TrimSuffix(literal, quoted))
	quotes := 1
	if strings.HasPrefix(quoted, `"""`) || strings.HasPrefix(quoted, "'''") {
		quotes = 3
	}
	body := quoted[quotes : len(quoted)-quotes]
	if strings.ContainsAny(prefix, "bft") || !utf8.ValidString(body) {
		return "", false
	}
	if strings.Contains(prefix, "r") {
		return body, true
	}
	ok = true
	value = escape.ReplaceAllStringFunc(body, func(e string) string {
		if text, known := escapes[e]; known {
			return text
		}
		code, err := strconv.ParseUint(e[2:], 16, 32)
		switch {
		case err == nil && code <= unicode.MaxRune:
			return string(rune(code))
		case err == nil || strings.ContainsAny(e[1:], "01234567NxuU"):
			ok = false
		}
		return e // Python keeps the backslash
	})
	return value, ok
}
