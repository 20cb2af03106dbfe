package jobfile

import (
	"fmt"
	"regexp"
	"unicode/utf8"
)

// maxDepth is how deep a file may be nested. Parsers recurse, and a Go program does not
// survive the end of its stack.
const maxDepth = 100

type kind int

const (
	broken kind = iota // an error has been reported for it; to be passed over
	null
	boolean
	number
	text
	list
	mapping
)

func (k kind) String() string {
	return [...]string{"a broken value", "nothing", "a boolean", "a number", "text", "a list", "a mapping"}[k]
}

// node is one value of the file. Nodes are shared by aliases and never changed
// once built.
type node struct {
	kind    kind
	at      position
	scalar  string // text, number as JSON writes it, "true", "false"
	items   []*node
	members []member
}

type member struct {
	name  string
	at    position
	value *node
}

// jsonNumber is the spelling of numbers that JSON and every YAML version share.
var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// clip keeps a quoted bad input from filling the terminal, and from showing a
// password.
func clip(s string) string {
	const most = 60
	s = mask(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return fmt.Sprintf("%s...", string([]rune(s)[:most]))
}
