package jobfile

import (
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// maxMerged bounds the members that merge keys copy, in the whole file.
	maxMerged = 100_000
)

// tree builds nodes from the parser's syntax tree.
type tree struct {
	*source
	anchors map[string]*node
	merged  int
}

// parseTree returns the root of the file's only document; nil when an error was
// reported.
func parseTree(s *source) *node {
	file := parseYAML(s)
	if file == nil {
		return nil
	}
	t := &tree{source: s, anchors: map[string]*node{}}
	var root *node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		next := t.node(doc.Body, 0)
		if root != nil {
			s.fail(next.at, "a second YAML document: want one document a file")
			return nil
		}
		root = next
	}
	if root == nil {
		s.fail(position{}, "the file holds only comments: want \"version: 1\" and \"jobs:\"")
	}
	return root
}

// parseYAML runs the parser. It is not ours: should an input make it panic, that
// is a broken file like any other, not the end of a process that reads its file
// again on a signal.
func parseYAML(s *source) (file *ast.File) {
	defer func() {
		if p := recover(); p != nil {
			s.fail(position{}, "this is not YAML that can be read (%v)", p)
			file = nil
		}
	}()
	tokens := lexer.Tokenize(s.text)
	if tk := tooDeep(tokens); tk != nil {
		s.fail(position{tk.Position.Line, tk.Position.Column}, "nested too deeply: at most %d levels", maxDepth)
		return nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file
	}
	var syntax yaml.Error
	if !errors.As(err, &syntax) || syntax.GetToken() == nil {
		s.fail(position{}, "%s", firstLine(err.Error()))
		return nil
	}
	pos, message := syntax.GetToken().Position, syntax.GetMessage()
	if strings.HasPrefix(message, "found character '\t'") {
		message = "a tab cannot indent: use spaces"
	}
	if pos.Line <= len(s.lines) && unquotedStar.MatchString(s.lines[pos.Line-1]) {
		message = "a value that begins with * must be in quotes: schedule: \"* * * * *\""
	}
	s.fail(position{pos.Line, pos.Column}, "%s", firstLine(message))
	return nil
}

// unquotedStar finds what nearly everybody writes first: to YAML * begins an
// alias.
var unquotedStar = regexp.MustCompile(`^[^#"']*:\s+\*\S*(\s|$)`)

// tooDeep finds nesting that costs next to no bytes: brackets, and marks in a
// row. Nesting by indentation is long before it is deep; node counts that.
func tooDeep(tokens token.Tokens) *token.Token {
	depth, row := 0, 0
	for _, tk := range tokens {
		switch tk.Type {
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
			row++
		default:
			row = 0
		}
		if depth > maxDepth || row > 2*maxDepth {
			return tk
		}
	}
	return nil
}

func (t *tree) node(n ast.Node, depth int) *node {
	if depth > maxDepth {
		return t.broken(n, "nested too deeply: at most %d levels", maxDepth)
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return &node{kind: null, at: at(n)}
	case *ast.BoolNode:
		return &node{kind: boolean, at: at(n), scalar: strconv.FormatBool(n.Value)}
	case *ast.IntegerNode, *ast.FloatNode:
		return t.number(n)
	case *ast.StringNode:
		return t.text(n, n.Value)
	case *ast.LiteralNode:
		return t.text(n, n.Value.Value)
	case *ast.SequenceNode:
		list := &node{kind: list, at: at(n)}
		for _, value := range n.Values {
			list.items = append(list.items, t.node(value, depth+1))
		}
		return list
	case *ast.MappingNode:
		return t.mapping(n, n.Values, depth)
	case *ast.MappingValueNode:
		return t.mapping(n, []*ast.MappingValueNode{n}, depth)
	case *ast.AnchorNode:
		// Known only once it is complete: an alias inside its own anchor has no
		// end.
		value := t.node(n.Value, depth+1)
		t.anchors[n.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		return t.alias(n)
	case *ast.TagNode:
		return t.broken(n, "tag %s is not supported: leave it out", clip(n.Start.Value))
	case *ast.InfinityNode, *ast.NanNode:
		return t.broken(n, "%s is not a number that JSON knows", n.GetToken().Value)
	case nil:
		return t.broken(nil, "this is not YAML that can be read")
	}
	return t.broken(n, "%s is not supported here", n.Type().YAMLName())
}

// alias shares the anchor's value: a mistake in it is shown where it is written,
// once for each job that uses it.
func (t *tree) alias(n *ast.AliasNode) *node {
	name := n.Value.GetToken().Value
	value := t.anchors[name]
	if value == nil {
		return t.broken(n, "alias *%s: no anchor &%s before it", clip(name), clip(name))
	}
	return value
}

func (t *tree) mapping(n ast.Node, values []*ast.MappingValueNode, depth int) *node {
	m := &node{kind: mapping, at: at(n)}
	if len(values) > 0 && n.GetToken().Type != token.MappingStartType {
		m.at = at(values[0].Key)
	}
	seen := map[string]bool{}
	var merges []*node
	for _, v := range values {
		value := t.node(v.Value, depth+1)
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			merges = append(merges, value)
			continue
		}
		key, ok := v.Key.(*ast.StringNode)
		switch {
		case !ok:
			t.broken(v.Key, "key %s is not text: put it in quotes", clip(v.Key.GetToken().Value))
		case seen[key.Value]:
			t.broken(key, "%q is here twice", clip(key.Value))
		case t.text(key, key.Value).kind != broken:
			seen[key.Value] = true
			m.members = append(m.members, member{key.Value, at(key), value})
		}
	}
	for _, from := range merges {
		t.merge(m, from, seen)
	}
	return m
}

// merge copies the members that m does not have itself.
func (t *tree) merge(m, from *node, seen map[string]bool) {
	switch from.kind {
	case broken:
	case list:
		for _, item := range from.items {
			if item.kind == list {
				item = &node{kind: text, at: item.at}
			}
			t.merge(m, item, seen)
		}
	case mapping:
		t.merged += len(from.members)
		if t.merged > maxMerged {
			t.fail(m.at, "merge keys copy more than %d fields: write them out", maxMerged)
			return
		}
		for _, f := range from.members {
			if !seen[f.name] {
				seen[f.name] = true
				m.members = append(m.members, f)
			}
		}
	default:
		t.fail(from.at, "the merge key << wants an alias of a mapping, like \"<<: *defaults\"")
	}
}

func (t *tree) number(n ast.Node) *node {
	raw := n.GetToken().Value
	if !jsonNumber.MatchString(raw) {
		return t.broken(n, "number %s: want plain decimal digits, or quotes if it is text", clip(raw))
	}
	var f float64
	if err := json.Unmarshal([]byte(raw), &f); err != nil {
		return t.broken(n, "number %s is out of range: put it in quotes", clip(raw))
	}
	return &node{kind: number, at: at(n), scalar: raw}
}

// text is a string, unless it is a number that the parser took for one because
// it does not fit into 64 bits.
func (t *tree) text(n ast.Node, value string) *node {
	if n.GetToken().Type == token.StringType && jsonNumber.MatchString(value) {
		return t.number(n)
	}
	if !utf8.ValidString(value) {
		return t.broken(n, "an escape in this text does not give UTF-8")
	}
	return &node{kind: text, at: at(n), scalar: value}
}

func (t *tree) broken(n ast.Node, format string, args ...any) *node {
	t.fail(at(n), format, args...)
	return &node{kind: broken, at: at(n)}
}

func at(n ast.Node) position {
	if n == nil || n.GetToken() == nil {
		return position{}
	}
	p := n.GetToken().Position
	return position{p.Line, p.Column}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
