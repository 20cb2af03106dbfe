package spec

import (
	"fmt"
	"regexp"
	"unicode/utf8"
)

// MaxDepth is how deep a file may be nested. Parsers recurse, and a stack overflow ends a Go program.
const MaxDepth = 100

type kind int

const (
	Broken kind = iota // an error was reported for this node: decoders skip it
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

// Node is one value of the file. Aliases share nodes, so a node is never modified.
type Node struct {
	Kind    kind
	At      Position
	Scalar  string // text, number as JSON writes it, "true", "false"
	Items   []*Node
	Members []Member
}

// Member is a member of a mapping.
type Member struct {
	Name  string
	At    Position
	Value *Node
}

// JSONNumber matches numbers as JSON spells them. YAML 1.2 reads them as the same numbers.
var JSONNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// Clip shortens invalid input for an error message, and masks the private parts of URLs in it.
func Clip(s string) string {
	const most = 60
	s = mask(s)
	if utf8.RuneCountInString(s) <= most {
		return s
	}
	return fmt.Sprintf("%s...", string([]rune(s)[:most]))
}
