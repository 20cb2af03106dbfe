package python

import (
	"math"
	"math/big"
	"strings"
)

// maxDepth bounds how deeply expressions are nested. A deeper expression is opaque.
const maxDepth = 100

type parser struct {
	Program
	pos   int
	depth int

	statement int // the end of the last statement that mention has read
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) is(symbols string) bool {
	t := p.peek()
	return t.kind == symbol && t.value == symbols
}

// closes reports whether the token ends an expression.
func closes(t token) bool {
	if t.kind == newline || t.kind == end {
		return true
	}
	return t.kind == symbol && len(t.value) == 1 && strings.Contains(",)]}:=;", t.value)
}

// expression reads an expression, up to the token that ends it.
func (p *parser) expression() Value {
	from := p.pos
	if p.depth++; p.depth > maxDepth {
		p.depth--
		return p.opaque(from)
	}
	v, ok := p.primary()
	p.depth--
	if !ok || !closes(p.peek()) {
		return p.opaque(from)
	}
	return p.placed(v, from)
}

// placed sets the lines and the source of an expression that begins at a token and ends before the
// parser's next one.
func (p *parser) placed(v Value, from int) Value {
	v.Line, v.End = p.tokens[from].line, p.tokens[max(from, p.pos-1)].line
	if p.pos > from {
		v.Source = oneLine(p.source[p.tokens[from].at:p.tokens[p.pos-1].to])
	}
	return v
}

// oneLine returns the first 100 bytes of a source, on one line. It reads no more of a long source,
// since each expression around another one has the source of that, too.
func oneLine(source string) string {
	const most = 100
	var line strings.Builder
	for word := range strings.FieldsSeq(source) {
		if line.Len() > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(word[:min(len(word), most+1)])
		if line.Len() > most {
			return strings.ToValidUTF8(line.String()[:most], "") + "..."
		}
	}
	return line.String()
}

// opaque skips an expression that is not a literal.
func (p *parser) opaque(from int) Value {
	p.pos = from
	var open []string
	inLambda := false // a colon then belongs to the lambda
	for {
		t := p.peek()
		if t.kind == end || len(open) == 0 && closes(t) && t.value != ":" {
			break
		}
		if len(open) == 0 && t.kind == symbol && t.value == ":" && !inLambda {
			break
		}
		inLambda = inLambda || t.kind == name && t.value == "lambda"
		if t.kind == symbol {
			switch t.value {
			case "(", "[", "{":
				open = append(open, t.value)
			case ")", "]", "}":
				open = open[:len(open)-1]
			}
		}
		p.pos++
	}
	return p.placed(Value{Kind: Opaque}, from)
}

// primary reads a literal, a name or a call.
func (p *parser) primary() (Value, bool) {
	t := p.peek()
	switch t.kind {
	case text:
		var joined strings.Builder
		for p.peek().kind == text { // Python joins adjacent strings
			joined.WriteString(p.peek().value)
			p.pos++
		}
		return Value{Kind: Text, Text: joined.String()}, true
	case number:
		p.pos++
		return numberOf(t.value)
	case name:
		return p.named(t)
	case symbol:
		switch t.value {
		case "-", "+":
			if p.tokens[p.pos+1].kind != number {
				return Value{}, false
			}
			v, ok := numberOf(p.tokens[p.pos+1].value)
			p.pos += 2
			if t.value == "-" {
				v.Text = "-" + v.Text
			}
			return v, ok
		case "[":
			v, _, ok := p.list("]")
			return v, ok
		case "(":
			v, comma, ok := p.list(")")
			if ok && !comma && len(v.Items) == 1 {
				return v.Items[0], v.Items[0].Kind != Opaque // brackets around an expression
			}
			return v, ok
		case "{":
			return p.dict()
		}
	}
	return Value{}, false
}

func numberOf(source string) (Value, bool) {
	plain := strings.ReplaceAll(source, "_", "")
	if n, ok := new(big.Int).SetString(plain, 0); ok && len(plain) < 100 {
		return Value{Kind: Int, Text: n.String()}, true
	}
	f, _, err := big.ParseFloat(plain, 10, 53, big.ToNearestEven)
	if err != nil {
		return Value{}, false
	}
	x, _ := f.Float64()
	if math.IsInf(x, 0) {
		return Value{}, false
	}
	return Value{Kind: Float, Text: formatFloat(x)}, true
}

func (p *parser) named(t token) (Value, bool) {
	at := p.pos
	p.pos++
	switch t.value {
	case "None":
		return Value{Kind: None}, true
	case "True", "False":
		return Value{Kind: Bool, Bool: t.value == "True"}, true
	case "lambda", "not", "await", "yield", "if", "for", "else", "and", "or", "in", "is":
		return Value{}, false
	}
	for p.is(".") && p.tokens[p.pos+1].kind == name {
		p.pos += 2
	}
	whole := p.dotted(p.pos - 1)
	if !p.is("(") {
		return Value{Kind: Name, Text: whole}, true
	}
	v := p.call(p.tokens[at], whole)
	return v, v.Kind == Call
}

// call reads the arguments of a call. The name has been read.
func (p *parser) call(t token, whole string) Value {
	v := Value{Kind: Call, Text: whole, Line: t.line}
	from := p.pos
	_, closed := p.items(")", func() bool {
		switch {
		case p.is("*") || p.is("**"):
			v.Starred = true
			p.pos++
			p.expression()
		case p.peek().kind == name && p.tokens[p.pos+1].kind == symbol && p.tokens[p.pos+1].value == "=":
			arg := Arg{Name: p.peek().value}
			p.pos += 2
			arg.Value = p.expression()
			v.Args = append(v.Args, arg)
		default:
			v.Items = append(v.Items, p.expression())
		}
		return true
	})
	if !closed {
		p.pos = from
		o := p.opaque(from)
		o.Line = t.line
		return o
	}
	placed := p.placed(v, from)
	v.Source, v.End = whole+placed.Source, placed.End
	return v
}

// items reads what is between two brackets. item reads one item, and returns false if it cannot go on.
// comma reports whether there was a comma, and closed whether the second bracket was reached.
func (p *parser) items(bracket string, item func() bool) (comma, closed bool) {
	p.pos++
	for !p.is(bracket) {
		if !item() {
			return comma, false
		}
		if !p.is(",") {
			break
		}
		comma = true
		p.pos++
	}
	if !p.is(bracket) {
		return comma, false
	}
	p.pos++
	return comma, true
}

// list reads the items up to a bracket. comma reports whether there was a comma.
func (p *parser) list(bracket string) (v Value, comma, ok bool) {
	v = Value{Kind: List}
	comma, ok = p.items(bracket, func() bool {
		v.Items = append(v.Items, p.expression())
		return true
	})
	return v, comma, ok
}

// dict reads a dict, or a set.
func (p *parser) dict() (v Value, ok bool) {
	v = Value{Kind: Dict}
	_, ok = p.items("}", func() bool {
		if p.is("**") {
			p.pos++
			v.Keys = append(v.Keys, Value{Kind: Opaque, Line: p.peek().line, Source: "**"})
			v.Items = append(v.Items, p.opaque(p.pos))
			return true
		}
		first := p.expression()
		if !p.is(":") {
			v.Kind, v.Items = List, append(v.Items, first)
			return len(v.Keys) == 0
		}
		p.pos++
		v.Keys, v.Items = append(v.Keys, first), append(v.Items, p.expression())
		return v.Kind == Dict
	})
	return v, ok
}
