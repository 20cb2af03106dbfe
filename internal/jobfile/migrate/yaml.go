package migrate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/cronce-io/cronce/internal/jobfile"
)

// parseYAML parses a text. what names it in errors.
func parseYAML(text []byte, what string) (*ast.File, error) {
	file, err := jobfile.Documents(string(text))
	if _, deep := errors.AsType[*jobfile.DeepError](err); deep {
		return nil, fmt.Errorf("it is nested too deeply to be %s", what)
	}
	if _, broken := errors.AsType[*jobfile.PanicError](err); broken {
		return nil, err
	}
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, true))
	}
	for _, doc := range file.Docs {
		r := resolver{anchors: map[string]resolved{}}
		if doc.Body = r.node(doc.Body).node; r.copied > maxCopied {
			return nil, fmt.Errorf("its aliases stand for more than %d values", maxCopied)
		}
	}
	return file, nil
}

// withContent returns the documents that are not empty.
func withContent(file *ast.File) (some []ast.Node) {
	for _, doc := range file.Docs {
		if n := doc.Body; n != nil && n.Type() != ast.NullType && n.Type() != ast.CommentType && n.Type() != ast.DirectiveType {
			some = append(some, n)
		}
	}
	return some
}

// maxCopied bounds the values that aliases and merge keys stand for: a few nested ones can stand for
// any number.
const maxCopied = 100_000

// resolver replaces anchors, aliases and merge keys in a document by what they stand for.
type resolver struct {
	anchors map[string]resolved
	copied  int
}

// resolved is a node without aliases, and the number of values in it.
type resolved struct {
	node ast.Node
	size int
}

func (r *resolver) node(n ast.Node) resolved {
	size := 1
	switch of := n.(type) {
	case *ast.AnchorNode:
		value := r.node(of.Value)
		r.anchors[of.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		value, known := r.anchors[of.Value.GetToken().Value]
		if r.copied += value.size; !known || r.copied > maxCopied {
			return resolved{n, size} // decoding it is an error
		}
		return value
	case *ast.SequenceNode:
		for i, item := range of.Values {
			value := r.node(item)
			of.Values[i], size = value.node, size+value.size
		}
	case *ast.MappingNode:
		of.Values, size = r.members(of.Values)
	case *ast.MappingValueNode:
		var members []*ast.MappingValueNode
		if members, size = r.members([]*ast.MappingValueNode{of}); len(members) != 1 || members[0] != of {
			n = ast.Mapping(of.GetToken(), false, members...)
		}
	}
	return resolved{n, size}
}

// members resolves the members of a mapping, and adds those of its merge keys that it does not have.
func (r *resolver) members(all []*ast.MappingValueNode) (members []*ast.MappingValueNode, size int) {
	known := map[string]bool{}
	var merged []ast.Node
	for _, m := range all {
		value := r.node(m.Value)
		size += value.size
		if _, isMerge := m.Key.(*ast.MergeKeyNode); !isMerge {
			m.Value = value.node
			members, known[keyOf(m)] = append(members, m), true
		} else if list, isList := value.node.(*ast.SequenceNode); isList {
			merged = append(merged, list.Values...)
		} else {
			merged = append(merged, value.node)
		}
	}
	for _, from := range merged {
		for _, m := range pairs(from) {
			if !known[keyOf(m)] {
				members, known[keyOf(m)] = append(members, m), true
			}
		}
	}
	return members, size + 1
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
