package python

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is the kind of a token.
type tokenKind int

const (
	end     tokenKind = iota // of the file
	newline                  // of a statement: outside of brackets
	name
	number
	text   // a string; token.value is its value
	symbol // an operator or a bracket
	other  // an unknown character, or a string that is not a literal, such as f"..."
)

type token struct {
	kind  tokenKind
	value string
	at    int // its first byte in the source
	to    int // the byte after it
	line  int // from 1
	bytes bool
}

// scan splits a program into tokens. It never fails: an unfinished string ends with its line (with
// three quotes, with the program), and unknown characters are tokens of the kind other.
func scan(source string) []token {
	s := scanner{source: source, line: 1}
	for s.next() {
	}
	s.add(token{kind: newline, at: len(source), to: len(source)})
	s.add(token{kind: end, at: len(source), to: len(source)})
	return s.tokens
}

type scanner struct {
	source string
	at     int
	line   int
	depth  int // of brackets
	tokens []token
}

func (s *scanner) add(t token) {
	t.line = s.line
	s.tokens = append(s.tokens, t)
}

// next reads one token, or skips white space or a comment. It returns false at the end.
func (s *scanner) next() bool {
	if s.at >= len(s.source) {
		return false
	}
	rest := s.source[s.at:]
	switch c := rest[0]; {
	case c == '\n':
		if s.depth == 0 {
			s.add(token{kind: newline, at: s.at, to: s.at + 1})
		}
		s.line++
		s.at++
	case c == ' ' || c == '\t' || c == '\r' || c == '\f':
		s.at++
	case c == '#':
		if i := strings.IndexByte(rest, '\n'); i >= 0 {
			s.at += i
		} else {
			s.at = len(s.source)
		}
	case c == '\\' && strings.HasPrefix(strings.TrimPrefix(rest[1:], "\r"), "\n"):
		s.at += strings.IndexByte(rest, '\n') + 1
		s.line++
	case c >= '0' && c <= '9' || c == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		s.word(number)
	case prefixed(rest) >= 0:
		s.text()
	default:
		r, size := utf8.DecodeRuneInString(rest)
		switch {
		case r == '_' || unicode.IsLetter(r):
			s.word(name)
		case unicode.IsPrint(r) && r < utf8.RuneSelf:
			s.symbol()
		default:
			s.add(token{kind: other, at: s.at, to: s.at + size})
			s.at += size
		}
	}
	return true
}

// word reads a name, or a number.
func (s *scanner) word(kind tokenKind) {
	from := s.at
	for s.at < len(s.source) {
		r, size := utf8.DecodeRuneInString(s.source[s.at:])
		previous := s.source[max(from, s.at-1)]
		switch {
		case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
		case kind == number && r == '.':
		case kind == number && (r == '+' || r == '-') && (previous == 'e' || previous == 'E') && !strings.HasPrefix(s.source[from:], "0x"):
		default:
			s.add(token{kind: kind, value: s.source[from:s.at], at: from, to: s.at})
			return
		}
		s.at += size
	}
	s.add(token{kind: kind, value: s.source[from:], at: from, to: s.at})
}

// operators are those of more than one character: the = of "==" is not an assignment.
var operators = []string{"**=", "//=", ">>=", "<<=", "==", "!=", "<=", ">=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", ":=", "->", "**", "//", "<<", ">>"}

func (s *scanner) symbol() {
	value := s.source[s.at : s.at+1]
	for _, o := range operators {
		if strings.HasPrefix(s.source[s.at:], o) {
			value = o
			break
		}
	}
	switch value {
	case "(", "[", "{":
		s.depth++
	case ")", "]", "}":
		s.depth = max(0, s.depth-1)
	}
	s.add(token{kind: symbol, value: value, at: s.at, to: s.at + len(value)})
	s.at += len(value)
}

// prefixed returns the length of a string's prefix, or -1 if rest does not begin with a string.
func prefixed(rest string) int {
	for i := range min(3, len(rest)) {
		switch rest[i] {
		case '\'', '"':
			return i
		case 'r', 'R', 'b', 'B', 'u', 'U', 'f', 'F', 't', 'T':
		default:
			return -1
		}
	}
	return -1
}

func (s *scanner) text() {
	from, line := s.at, s.line
	n := prefixed(s.source[from:])
	prefix := strings.ToLower(s.source[from : from+n])
	s.at += n
	quote := s.source[s.at : s.at+1]
	if strings.HasPrefix(s.source[s.at:], strings.Repeat(quote, 3)) {
		quote = strings.Repeat(quote, 3)
	}
	s.at += len(quote)
	raw := strings.Contains(prefix, "r")
	var value strings.Builder
	good, closed := !strings.ContainsAny(prefix, "ft"), false
	for s.at < len(s.source) && !closed {
		rest := s.source[s.at:]
		switch {
		case strings.HasPrefix(rest, quote):
			s.at += len(quote)
			closed = true
		case rest[0] == '\n' && len(quote) == 1:
			good, closed = false, true
		case rest[0] == '\\' && len(rest) > 1:
			size, ok := s.escape(rest, raw, strings.Contains(prefix, "b"), &value)
			good = good && ok
			s.at += size
		default:
			if rest[0] == '\n' {
				s.line++
			}
			value.WriteByte(rest[0])
			s.at++
		}
	}
	t := token{kind: text, value: value.String(), at: from, to: s.at, bytes: strings.Contains(prefix, "b")}
	if !good || !closed || !utf8.ValidString(t.value) {
		t.kind, t.value = other, ""
	}
	t.line = line
	s.tokens = append(s.tokens, t)
}

// escape reads an escape sequence. ok is false if its value is not known, like that of \N{...}.
func (s *scanner) escape(rest string, raw, isBytes bool, value *strings.Builder) (size int, ok bool) {
	if rest[1] == '\n' {
		s.line++
	}
	if raw {
		value.WriteString(rest[:2])
		return 2, true
	}
	simple := map[byte]string{'\n': "", '\\': `\`, '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v"}
	if text, known := simple[rest[1]]; known {
		value.WriteString(text)
		return 2, true
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[rest[1]]
	if isBytes && rest[1] != 'x' {
		digits = 0
	}
	switch {
	case digits > 0:
		if len(rest) < 2+digits {
			return 2, false
		}
		code, err := strconv.ParseUint(rest[2:2+digits], 16, 32)
		if err != nil || code > unicode.MaxRune {
			return 2, false
		}
		value.WriteRune(rune(code))
		return 2 + digits, !isBytes || code < utf8.RuneSelf
	case rest[1] >= '0' && rest[1] <= '7' || rest[1] == 'N':
		return 2, false
	}
	value.WriteString(rest[:2]) // Python keeps the backslash
	return 2, true
}
