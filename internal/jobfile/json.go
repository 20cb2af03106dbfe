package jobfile

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"
)

// ParseJSON reads data, a job file as JSON of at most 4 MiB, without a YAML parser. Its
// errors are those of Parse.
func ParseJSON(name string, data []byte, options ...Option) (*File, error) {
	s := newSource(name, data)
	if err := s.err(); err != nil {
		return nil, err
	}
	d := json.NewDecoder(strings.NewReader(s.text))
	d.UseNumber()
	t := &jsonTree{source: s, decoder: d}
	root := t.node(0)
	if _, err := d.Token(); root != nil && !errors.Is(err, io.EOF) {
		s.fail(t.at(), "text follows the end of the JSON document")
		root = nil
	}
	return decodeFile(s, root, options...)
}

// jsonTree builds nodes from the tokens of a JSON document.
type jsonTree struct {
	*source
	decoder *json.Decoder
}

// at returns the position behind the last token.
func (t *jsonTree) at() position {
	before := t.text[:min(int(t.decoder.InputOffset()), len(t.text))]
	line := strings.Count(before, "\n") + 1
	return position{line, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1}
}

// next skips white space and separators, and returns the position of the next token.
func (t *jsonTree) next() position {
	offset := int(t.decoder.InputOffset())
	skipped := len(t.text[offset:]) - len(strings.TrimLeft(t.text[offset:], " \t\r\n,:"))
	before := t.text[:offset+skipped]
	line := strings.Count(before, "\n") + 1
	return position{line, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1}
}

// node reads one value. It returns nil when it has reported that the text is no JSON.
func (t *jsonTree) node(depth int) *node {
	at := t.next()
	if depth > maxDepth {
		t.fail(at, "nested too deeply: at most %d levels", maxDepth)
		return nil
	}
	token, err := t.decoder.Token()
	if err != nil {
		t.fail(at, "this is not JSON: %v", err)
		return nil
	}
	switch v := token.(type) {
	case bool:
		if v {
			return &node{kind: boolean, at: at, scalar: "true"}
		}
		return &node{kind: boolean, at: at, scalar: "false"}
	case json.Number:
		return &node{kind: number, at: at, scalar: v.String()}
	case string:
		return &node{kind: text, at: at, scalar: v}
	case json.Delim:
		if v == '{' {
			return t.object(at, depth)
		}
		return t.array(at, depth)
	}
	return &node{kind: null, at: at}
}

func (t *jsonTree) array(at position, depth int) *node {
	n := &node{kind: list, at: at}
	for t.decoder.More() {
		item := t.node(depth + 1)
		if item == nil {
			return nil
		}
		n.items = append(n.items, item)
	}
	return t.end(n)
}

func (t *jsonTree) object(at position, depth int) *node {
	n := &node{kind: mapping, at: at}
	for t.decoder.More() {
		name := t.node(depth + 1)
		if name == nil {
			return nil
		}
		value := t.node(depth + 1)
		if value == nil {
			return nil
		}
		if n.member(name.scalar) != nil {
			t.fail(name.at, "%q is here twice", clip(name.scalar))
			continue
		}
		n.members = append(n.members, member{name.scalar, name.at, value})
	}
	return t.end(n)
}

// end reads the bracket that ends n.
func (t *jsonTree) end(n *node) *node {
	if _, err := t.decoder.Token(); err != nil {
		t.fail(t.at(), "this is not JSON: %v", err)
		return nil
	}
	return n
}
