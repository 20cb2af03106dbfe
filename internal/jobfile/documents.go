package jobfile

import (
	"fmt"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// DeepError is the error for a text that is nested too deeply to be parsed.
type DeepError struct{ At spec.Position }

func (e *DeepError) Error() string {
	return fmt.Sprintf("line %d: nested too deeply: at most %d levels", e.At.Line, spec.MaxDepth)
}

// PanicError is the error for a text at which the third-party parser panicked. The process, which may be
// reloading its file, goes on.
type PanicError struct{ Value any }

func (e *PanicError) Error() string {
	return fmt.Sprintf("this is not YAML that can be read (%v)", e.Value)
}

// Documents parses all documents of a text. The other errors are those of package parser.
func Documents(text string, options ...parser.Option) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, &PanicError{p}
		}
	}()
	tokens := lexer.Tokenize(text)
	if tk := tooDeep(tokens); tk != nil {
		return nil, &DeepError{spec.Position{Line: tk.Position.Line, Column: tk.Position.Column}}
	}
	return parser.Parse(withoutEmpty(tokens), 0, options...)
}

// withoutEmpty removes the lines --- that begin an empty document, one without content between it and
// the next line of its kind. The parser takes the first of them for the end of the text.
func withoutEmpty(tokens token.Tokens) token.Tokens {
	var all token.Tokens
	begin := -1 // the place in all of a line --- that nothing follows yet
	for _, tk := range tokens {
		switch tk.Type {
		case token.CommentType:
			continue
		case token.DocumentHeaderType, token.DocumentEndType:
			if begin >= 0 && !afterDirective(all, begin) {
				all = all[:begin]
			}
			begin = -1
			if tk.Type == token.DocumentHeaderType {
				begin = len(all)
			}
		default:
			begin = -1
		}
		all = append(all, tk)
	}
	return all
}

// afterDirective reports whether the line --- at a place follows a directive, which cannot stand without it.
func afterDirective(all token.Tokens, begin int) bool {
	for i := begin - 1; i >= 0 && all[i].Position.Line == all[begin-1].Position.Line; i-- {
		if all[i].Type == token.DirectiveType {
			return true
		}
	}
	return false
}

// tooDeep returns the first token that is nested too deeply by brackets, or by marks like "- - -"
// in a row, which need only a byte or two for each level. node counts nesting by indentation, which
// needs far more text.
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
		if depth > spec.MaxDepth || row > 2*spec.MaxDepth {
			return tk
		}
	}
	return nil
}
