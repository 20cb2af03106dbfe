package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ParseJSON parses data, a job file as JSON of at most 4 MiB, without a YAML parser. Its errors are
// those of jobfile.Parse.
func ParseJSON(name string, data []byte, options ...Option) (*File, error) {
	s := NewSource(name, data)
	if err := s.Err(); err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(s.Text))
	d.UseNumber()
	t := &jsonTree{Source: s, decoder: d}
	root := t.node(0)
	if _, err := d.Token(); root != nil && !errors.Is(err, io.EOF) {
		s.Fail(t.at(), "text follows the end of the JSON document")
		root = nil
	}
	return DecodeFile(s, root, options...)
}

// jsonTree builds nodes from the tokens of a JSON document.
type jsonTree struct {
	*Source
	decoder *json.Decoder
}

// at returns the position after the last token.
func (t *jsonTree) at() Position {
	return positionAfter(t.Text[:min(int(t.decoder.InputOffset()), len(t.Text))])
}

// positionAfter returns the position of the character that follows the text.
func positionAfter(text string) Position {
	line := strings.Count(text, "\n") + 1
	return Position{line, utf8.RuneCountInString(text[strings.LastIndexByte(text, '\n')+1:]) + 1}
}

// next returns the position of the next token, after white space and separators.
func (t *jsonTree) next() Position {
	offset := int(t.decoder.InputOffset())
	skipped := len(t.Text[offset:]) - len(strings.TrimLeft(t.Text[offset:], " \t\r\n,:"))
	return positionAfter(t.Text[:offset+skipped])
}

// node reads one value. It returns nil if it has reported an error.
func (t *jsonTree) node(depth int) *Node {
	at := t.next()
	if depth > MaxDepth {
		t.Fail(at, "nested too deeply: at most %d levels", MaxDepth)
		return nil
	}
	token, err := t.decoder.Token()
	if err != nil {
		t.Fail(at, "this is not JSON: %v", err)
		return nil
	}
	switch v := token.(type) {
	case bool:
		return &Node{Kind: Boolean, At: at, Scalar: strconv.FormatBool(v)}
	case json.Number:
		return t.Number(at, v.String())
	case string:
		return &Node{Kind: Text, At: at, Scalar: v}
	case json.Delim:
		if v == '{' {
			return t.object(at, depth)
		}
		return t.array(at, depth)
	}
	return &Node{Kind: Null, At: at}
}

func (t *jsonTree) array(at Position, depth int) *Node {
	n := &Node{Kind: List, At: at}
	for t.decoder.More() {
		item := t.node(depth + 1)
		if item == nil {
			return nil
		}
		n.Items = append(n.Items, item)
	}
	return t.end(n)
}

func (t *jsonTree) object(at Position, depth int) *Node {
	n := &Node{Kind: Mapping, At: at}
	for t.decoder.More() {
		name := t.node(depth + 1)
		if name == nil {
			return nil
		}
		value := t.node(depth + 1)
		if value == nil {
			return nil
		}
		if n.member(name.Scalar) != nil {
			t.Fail(name.At, "%q is here twice", Clip(name.Scalar))
			continue
		}
		n.Members = append(n.Members, Member{name.Scalar, name.At, value})
	}
	return t.end(n)
}

// end reads the bracket that ends n.
func (t *jsonTree) end(n *Node) *Node {
	if _, err := t.decoder.Token(); err != nil {
		t.Fail(t.at(), "this is not JSON: %v", err)
		return nil
	}
	return n
}

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
