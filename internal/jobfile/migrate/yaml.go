package migrate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"

	"github.com/cronce-io/cronce/internal/jobfile"
)

// parseYAML parses a text, unless it is nested too deeply. what names it in errors.
func parseYAML(text []byte, what string) (*ast.File, error) {
	tokens := lexer.Tokenize(string(text))
	if jobfile.TooDeep(tokens) != nil {
		return nil, fmt.Errorf("it is nested too deeply to be %s", what)
	}
	file, err := parser.Parse(tokens, 0)
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

// member returns the value of a member of a mapping, or nil.
func member(n ast.Node, key string) ast.Node {
	for _, p := range pairs(n) {
		if keyOf(p) == key {
			return p.Value
		}
	}
	return nil
}

// oneLine returns the first line of an error.
func oneLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
