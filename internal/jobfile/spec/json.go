package spec

import (
	"encoding/json"
	"errors"
	"io"
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
