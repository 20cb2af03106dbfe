package python

import (
	"slices"
	"strings"
)

// Found is an assignment, a call or another mention of a wanted name.
type Found struct {
	// Name is the name that a value is assigned to, or the part of it after the last dot. It is the
	// target of an assignment, a named argument, or the key of a dict. It is empty for a call.
	Name string

	// Value is what is assigned, or the call. Its Line is where it begins.
	Value Value

	// Index is set if an item is assigned: X["report"] = ...
	Index *Value

	// Mention is true if the name occurs in another way, such as X.update(...) or X |= .... Value
	// is then opaque, and its source is the rest of the statement.
	Mention bool

	// Decorates is the function that a call decorates. Empty: none.
	Decorates string

	// Line is the line of the name.
	Line int
}

// Program is the source of a program, split into tokens.
type Program struct {
	source string
	tokens []token
}

// Parse reads a program.
func Parse(source string) Program { return Program{source, scan(source)} }

// Find returns the assignments to the names, the calls of the names and their
// other mentions, in the order of the file. It does not return a name that is part of a value that it
// returns.
func (program Program) Find(names ...string) []Found {
	p := parser{Program: program}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	var all []Found
	for p.peek().kind != end {
		t := p.peek()
		if (t.kind != name && t.kind != text) || !wanted[t.value] {
			p.pos++
			continue
		}
		if f, ok := p.found(t); ok {
			all = append(all, f)
		}
	}
	return all
}

// found reads what follows a wanted name.
func (p *parser) found(t token) (Found, bool) {
	f := Found{Name: t.value, Line: t.line}
	before := p.pos
	p.pos++
	follows := func(symbols ...string) bool { return slices.ContainsFunc(symbols, p.is) }
	if t.kind == text {
		if before == 0 || !follows(":") {
			return f, false
		}
		p.pos++
		f.Value = p.expression()
		return f, true
	}
	switch {
	case follows("("):
		if before > 0 && p.tokens[before-1].kind == name && (p.tokens[before-1].value == "def" || p.tokens[before-1].value == "class") {
			return f, false
		}
		f.Name, f.Value = "", p.call(t, p.dotted(before))
		f.Decorates = p.decorated(before)
		return f, true
	case follows("["):
		p.pos++
		index := p.expression()
		if !p.is("]") {
			return p.mention(f, before)
		}
		p.pos++
		f.Index = &index
	case follows(":"): // an annotation
		p.pos++
		p.expression()
	}
	if !follows("=") {
		return p.mention(f, before)
	}
	p.pos++
	f.Value = p.expression()
	return f, true
}

// mention returns a name that is neither assigned to nor called, with the rest of its statement.
func (p *parser) mention(f Found, at int) (Found, bool) {
	rest := at + 1
	if p.statement <= at { // it is not the end of this statement
		p.statement = rest
		for t := p.tokens[rest]; t.kind != newline && t.kind != end && t.value != ";"; t = p.tokens[p.statement] {
			p.statement++
		}
	}
	p.pos = p.statement
	f.Mention, f.Index, f.Value = true, nil, p.placed(Value{Kind: Opaque}, at)
	p.pos = rest // the rest may contain other names
	return f, true
}

// dotted returns the whole dotted name that ends at a token.
func (p *parser) dotted(at int) string {
	parts := []string{p.tokens[at].value}
	for at >= 2 && p.tokens[at-1].value == "." && p.tokens[at-1].kind == symbol && p.tokens[at-2].kind == name {
		at -= 2
		parts = append(parts, p.tokens[at].value)
	}
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}

// decorated returns the name of the function that a call decorates, or "". The call has just been
// read; its name is the token at.
func (p *parser) decorated(at int) string {
	for at >= 1 && (p.tokens[at-1].kind == name || p.tokens[at-1].value == ".") {
		at--
	}
	if at == 0 || p.tokens[at-1].kind != symbol || p.tokens[at-1].value != "@" {
		return ""
	}
	for i := p.pos; i < len(p.tokens)-1; i++ { // other decorators may follow
		t, next := p.tokens[i], p.tokens[i+1]
		switch {
		case t.kind == name && t.value == "def" && next.kind == name:
			return next.value
		case t.kind == name && t.value == "class":
			return ""
		case t.kind == newline && next.kind != newline && !slices.Contains([]string{"@", "def", "class", "async"}, next.value):
			return "" // neither a decorator nor what it decorates
		}
	}
	return ""
}
