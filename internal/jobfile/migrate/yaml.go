package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// parseYAML parses a text, unless it is nested too deeply. what names it in errors.
func parseYAML(text []byte, what string) (*ast.File, error) {
	if deep(text) {
		return nil, fmt.Errorf("it is nested too deeply to be %s", what)
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	return file, nil
}

// pairs returns the members of a mapping, or nil.
func pairs(n ast.Node) (all []*ast.MappingValueNode) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{m}
	}
	return nil
}

// keyOf returns the key of a member without the colon before it, which marks a symbol of Ruby.
func keyOf(v *ast.MappingValueNode) string {
	t := v.Key.GetToken()
	if t == nil {
		return ""
	}
	return strings.TrimPrefix(t.Value, ":")
}

// deep reports whether a text is nested so deeply that the parser, which recurses, could overflow
// the stack.
func deep(text []byte) bool {
	const most = 200
	depth := 0
	for line := range strings.Lines(string(text)) {
		if len(line)-len(strings.TrimLeft(line, " -")) > 10*most {
			return true
		}
	}
	for _, c := range text {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		}
		if depth > most {
			return true
		}
	}
	return false
}

// lineOf returns the line on which a node begins, from 1.
func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
		n = m.Values[0].Key
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

// items returns the elements of the list "items" of a mapping.
func items(body ast.Node) []ast.Node {
	for _, p := range pairs(body) {
		if s, ok := p.Value.(*ast.SequenceNode); ok && keyOf(p) == "items" {
			return s.Values
		}
	}
	return nil
}

func hasKey(n ast.Node, key string) bool {
	return slices.ContainsFunc(pairs(n), func(p *ast.MappingValueNode) bool { return keyOf(p) == key })
}

// oneLine returns the first line of an error.
func oneLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
