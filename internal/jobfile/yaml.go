package jobfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// maxMerged bounds the members that merge keys copy, in the whole file.
const maxMerged = 100_000

// tree builds nodes from the parser's syntax tree.
type tree struct {
	*spec.Source
	anchors map[string]*spec.Node
	merged  int
}

// parseTree returns the root of the file's only document. It returns nil, or a root of the kind
// Broken, if it has reported an error.
func parseTree(s *spec.Source) *spec.Node {
	file := parseYAML(s)
	if file == nil {
		return nil
	}
	t := &tree{Source: s, anchors: map[string]*spec.Node{}}
	var root *spec.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		next := t.node(doc.Body, 0)
		if root != nil {
			s.Fail(next.At, "a second YAML document: want one document per file")
			return nil
		}
		root = next
	}
	if root == nil {
		s.Fail(spec.Position{}, "the file holds only comments: want \"version: 1\" and \"jobs:\"")
	}
	return root
}

// parseYAML parses the text, or reports why it cannot.
func parseYAML(s *spec.Source) *ast.File {
	file, err := Documents(s.Text, parser.AllowDuplicateMapKey())
	if err == nil {
		return file
	}
	if deep, ok := errors.AsType[*DeepError](err); ok {
		s.Fail(deep.At, "nested too deeply: at most %d levels", spec.MaxDepth)
		return nil
	}
	var syntax yaml.Error
	if !errors.As(err, &syntax) || syntax.GetToken() == nil {
		s.Fail(spec.Position{}, "%s", firstLine(err.Error()))
		return nil
	}
	pos, message := syntax.GetToken().Position, syntax.GetMessage()
	if strings.HasPrefix(message, "found character '\t'") {
		message = "a tab cannot indent: use spaces"
	}
	if pos.Line <= len(s.Lines) && unquotedStar.MatchString(s.Lines[pos.Line-1]) {
		message = "a value that begins with * must be in quotes: schedule: \"* * * * *\""
	}
	s.Fail(spec.Position{Line: pos.Line, Column: pos.Column}, "%s", firstLine(message))
	return nil
}

// unquotedStar matches a schedule without quotes, a frequent mistake: in YAML * begins an alias.
var unquotedStar = regexp.MustCompile(`^[^#"']*:\s+\*\S*(\s|$)`)

func (t *tree) node(n ast.Node, depth int) *spec.Node {
	if depth > spec.MaxDepth {
		return t.broken(n, "nested too deeply: at most %d levels", spec.MaxDepth)
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return &spec.Node{Kind: spec.Null, At: at(n)}
	case *ast.BoolNode:
		return &spec.Node{Kind: spec.Boolean, At: at(n), Scalar: strconv.FormatBool(n.Value)}
	case *ast.IntegerNode, *ast.FloatNode:
		return t.number(n)
	case *ast.StringNode:
		return t.text(n, n.Value)
	case *ast.LiteralNode:
		return t.text(n, n.Value.Value)
	case *ast.SequenceNode:
		list := &spec.Node{Kind: spec.List, At: at(n)}
		for _, value := range n.Values {
			list.Items = append(list.Items, t.node(value, depth+1))
		}
		return list
	case *ast.MappingNode:
		return t.mapping(n, n.Values, depth)
	case *ast.MappingValueNode:
		return t.mapping(n, []*ast.MappingValueNode{n}, depth)
	case *ast.AnchorNode:
		// The anchor is added after its value, so that an alias inside its own anchor is an
		// error and not an endless loop.
		value := t.node(n.Value, depth+1)
		t.anchors[n.Name.GetToken().Value] = value
		return value
	case *ast.AliasNode:
		return t.alias(n)
	case *ast.TagNode:
		return t.broken(n, "tag %s is not supported: leave it out", spec.Clip(n.Start.Value))
	case *ast.InfinityNode, *ast.NanNode:
		return t.broken(n, "%s is not a JSON number", n.GetToken().Value)
	case nil:
		return t.broken(nil, "this is not YAML that can be read")
	}
	return t.broken(n, "%s is not supported here", n.Type().YAMLName())
}

// alias returns the node of the anchor, without a copy. A mistake in it is reported at the anchor,
// once for each job that uses it.
func (t *tree) alias(n *ast.AliasNode) *spec.Node {
	name := n.Value.GetToken().Value
	value := t.anchors[name]
	if value == nil {
		return t.broken(n, "alias *%s: no anchor &%s before it", spec.Clip(name), spec.Clip(name))
	}
	return value
}

func (t *tree) mapping(n ast.Node, values []*ast.MappingValueNode, depth int) *spec.Node {
	m := &spec.Node{Kind: spec.Mapping, At: at(n)}
	if len(values) > 0 && n.GetToken().Type != token.MappingStartType {
		m.At = at(values[0].Key)
	}
	seen := map[string]bool{}
	var merges []*spec.Node
	for _, v := range values {
		value := t.node(v.Value, depth+1)
		if _, merge := v.Key.(*ast.MergeKeyNode); merge {
			merges = append(merges, value)
			continue
		}
		key, ok := v.Key.(*ast.StringNode)
		switch {
		case !ok:
			t.broken(v.Key, "key %s is not text: put it in quotes", spec.Clip(v.Key.GetToken().Value))
		case seen[key.Value]:
			t.broken(key, "%q is here twice", spec.Clip(key.Value))
		case t.text(key, key.Value).Kind != spec.Broken:
			seen[key.Value] = true
			m.Members = append(m.Members, spec.Member{Name: key.Value, At: at(key), Value: value})
		}
	}
	for _, from := range merges {
		t.merge(m, from, seen)
	}
	return m
}

// merge adds the members of from that m does not have.
func (t *tree) merge(m, from *spec.Node, seen map[string]bool) {
	switch from.Kind {
	case spec.Broken:
	case spec.List:
		for _, item := range from.Items {
			if item.Kind == spec.List {
				item = &spec.Node{Kind: spec.Text, At: item.At}
			}
			t.merge(m, item, seen)
		}
	case spec.Mapping:
		t.merged += len(from.Members)
		if t.merged > maxMerged {
			t.Fail(m.At, "merge keys copy more than %d fields: write them out", maxMerged)
			return
		}
		for _, f := range from.Members {
			if !seen[f.Name] {
				seen[f.Name] = true
				m.Members = append(m.Members, f)
			}
		}
	default:
		t.Fail(from.At, "the merge key << wants an alias of a mapping, like \"<<: *defaults\"")
	}
}

func (t *tree) number(n ast.Node) *spec.Node {
	raw := n.GetToken().Value
	if !spec.JSONNumber.MatchString(raw) {
		return t.broken(n, "number %s: want plain decimal digits, or quotes if it is text", spec.Clip(raw))
	}
	return t.Number(at(n), raw)
}

// text returns a text node. If the text is a number without quotes, which the parser reads as text
// because it does not fit into 64 bits, text returns a number node.
func (t *tree) text(n ast.Node, value string) *spec.Node {
	if n.GetToken().Type == token.StringType && spec.JSONNumber.MatchString(value) {
		return t.number(n)
	}
	if !utf8.ValidString(value) {
		return t.broken(n, "an escape in this text is not valid UTF-8")
	}
	return &spec.Node{Kind: spec.Text, At: at(n), Scalar: value}
}

func (t *tree) broken(n ast.Node, format string, args ...any) *spec.Node {
	t.Fail(at(n), format, args...)
	return &spec.Node{Kind: spec.Broken, At: at(n)}
}

func at(n ast.Node) spec.Position {
	if n == nil || n.GetToken() == nil {
		return spec.Position{}
	}
	p := n.GetToken().Position
	return spec.Position{Line: p.Line, Column: p.Column}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// Load reads the file at path. If the file has mistakes, the error is a spec.Errors. If it cannot
// be read, the error wraps that of package os.
func Load(path string, options ...spec.Option) (*spec.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	defer f.Close()
	return Read(path, f, options...)
}

// Read parses what r contains. Its errors are those of Load.
func Read(name string, r io.Reader, options ...spec.Option) (*spec.File, error) {
	data, err := io.ReadAll(io.LimitReader(r, spec.MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("job file: %w", err)
	}
	return Parse(name, data, options...)
}

// Parse parses data, at most 4 MiB. All errors are of type spec.Errors and wrap job.ErrInvalid.
// Each begins with name.
func Parse(name string, data []byte, options ...spec.Option) (*spec.File, error) {
	s := spec.NewSource(name, data)
	if err := s.Err(); err != nil {
		return nil, err
	}
	return spec.DecodeFile(s, parseTree(s), options...)
}
