package spec

import (
	"fmt"
	"regexp"
	"unicode/utf8"
)

// MaxDepth is how deep a file may be nested. Parsers recurse, and a Go program does not
// survive the end of its stack.
const MaxDepth = 100

type kind int

const (
	Broken kind = iota // an error has been reported for it; to be passed over
	Null
	Boolean
	Number
	Text
	List
	Mapping
)

func (k kind) String() string {
	return [...]string{"a broken value", "nothing", "a boolean", "a number", "text", "a list", "a mapping"}[k]
}

// Node is one value of the file. Nodes are shared by aliases and never changed
// once built.
type Node struct {
	Kind    kind
	At      Position
	Scalar  string // text, number as JSON writes it, "true", "false"
	Items   []*Node
	Members []Member
}

type Member struct {
	Name  string
	At    Position
	Value *Node
}

// JsonNumber is the spelling of numbers that JSON and every YAML version share.
var JsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// Clip keeps a quoted bad input from filling the terminal, and from showing a
// password.
func Clip(s string) string {
	const most = 60
	s = mask(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return fmt.Sprintf("%s...", string([]rune(s)[:most]))
}
