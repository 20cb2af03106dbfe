package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/api/row"
	"github.com/cronce-io/cronce/internal/api/schema"
	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/web/problem"
	"github.com/cronce-io/cronce/job"
)

// param is one field of an operation's input.
type param struct {
	reflect.StructField
	in, name string // in: path, query, header, body
}

// paramsOf lists the fields of an input, those of embedded structs included.
func paramsOf(t reflect.Type) (list []param) {
	for _, f := range reflect.VisibleFields(t) {
		for _, in := range []string{"path", "query", "header", "body"} {
			if name, ok := f.Tag.Lookup(in); ok {
				list = append(list, param{f, in, name})
			}
		}
	}
	return list
}

// wrong returns the problem of a parameter, a header or a member.
func wrong(field, format string, args ...any) error {
	d := problem.New(fault.Invalid, fmt.Sprintf(format, args...))
	d.Field = field
	return d
}

// blame returns err as the problem of a parameter, a header or a member, if err says that a value is
// invalid. It returns other errors unchanged.
func blame(field string, err error) error {
	if err == nil || fault.Of(err) != fault.Invalid {
		return err
	}
	d := problem.Of(err, false)
	d.Field = field
	return d
}

// decode reads a request into an input strictly: an unknown parameter, or one that is given
// twice, is an error.
func decode(r *http.Request, params []param, into reflect.Value) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return wrong("query", "read the query: %v", err)
	}
	known, hasBody := map[string]bool{}, false
	for _, p := range params {
		field := into.FieldByIndex(p.Index)
		var values []string
		switch p.in {
		case "path":
			values = []string{r.PathValue(p.name)}
		case "query":
			known[p.name] = true
			values = query[p.name]
		case "header":
			values = r.Header.Values(p.name)
		case "body":
			hasBody = true
			if err := decodeBody(r, p, field); err != nil {
				return err
			}
			continue
		}
		if err := p.set(field, values); err != nil {
			return err
		}
	}
	for _, name := range sorted(query) {
		if !known[name] {
			return wrong(name, "unknown parameter %q%s", name, oneOf(known))
		}
	}
	if !hasBody {
		return emptyBody(r)
	}
	return nil
}

func oneOf(known map[string]bool) string {
	if len(known) == 0 {
		return ": this path has none"
	}
	return ": want " + strings.Join(sorted(known), ", ")
}

// emptyBody refuses a body that nothing would read.
func emptyBody(r *http.Request) error {
	if r.ContentLength == 0 || r.Body == nil {
		return nil
	}
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
		return wrong("body", "this operation takes no body")
	}
	return nil
}

// decodeBody reads a JSON body. An empty one leaves the field as it is, unless the body is
// required.
func decodeBody(r *http.Request, p param, field reflect.Value) error {
	data, err := io.ReadAll(r.Body)
	_, large := errors.AsType[*http.MaxBytesError](err)
	empty := len(bytes.TrimSpace(data)) == 0
	switch {
	case large:
		return problem.New(fault.TooLarge, "the body has more than 1 MiB")
	case err != nil:
		return wrong("body", "read the body: %v", err)
	case empty && p.Tag.Get("required") != "":
		return wrong("body", "the body is empty: want %s", p.Tag.Get("doc"))
	case empty:
		return nil
	}
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if charset := params["charset"]; err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return problem.New(fault.MediaType, fmt.Sprintf("Content-Type %q: want application/json, in UTF-8", r.Header.Get("Content-Type")))
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return problem.New(fault.MediaType, fmt.Sprintf("Content-Encoding %q: want a body that is not compressed", coding))
	}
	if raw, ok := field.Addr().Interface().(*json.RawMessage); ok {
		if !json.Valid(data) {
			return wrong("body", "the body is not JSON")
		}
		*raw = data
		return nil
	}
	if member, err := schema.Decode(data, field.Addr().Interface()); err != nil {
		return wrong(cmp.Or(member, "body"), "%v", err)
	}
	return nil
}

// set sets the field of a parameter to the values of a request. Without any, it sets the default, if
// there is one.
func (p param) set(field reflect.Value, values []string) error {
	if d := p.Tag.Get("default"); len(values) == 0 && d != "" {
		values = []string{d}
	}
	switch {
	case len(values) == 0:
		return nil
	case field.Kind() == reflect.Slice:
		for one := range strings.SplitSeq(strings.Join(values, ","), ",") {
			item := reflect.New(field.Type().Elem()).Elem()
			if err := p.parse(item, one); err != nil {
				return err
			}
			field.Set(reflect.Append(field, item))
		}
		return nil
	case len(values) > 1:
		return wrong(p.name, "%q is given %d times: want it once", p.name, len(values))
	}
	return p.parse(field, values[0])
}

func (p param) parse(field reflect.Value, value string) (err error) {
	if err := p.check(value); err != nil {
		return err
	}
	switch into := field.Addr().Interface().(type) {
	case *time.Time:
		if *into, err = time.Parse(time.RFC3339, value); err != nil {
			return p.invalid(value, "a time like 2026-11-21T07:00:00Z")
		}
	case *time.Duration:
		if *into, err = time.ParseDuration(value); err != nil || *into < 0 {
			return p.invalid(value, "a duration like 30s")
		}
	case *bool:
		if *into = value == "true"; !*into && value != "false" {
			return p.invalid(value, "true or false")
		}
	case *int:
		low, high := p.bounds()
		if *into, err = strconv.Atoi(value); err != nil || *into < low || *into > high {
			return p.invalid(value, fmt.Sprintf("a number from %d to %d", low, high))
		}
	default:
		field.SetString(value)
	}
	return nil
}

func (p param) invalid(value, want string) error {
	return wrong(p.name, "invalid %s %q: want %s", p.name, codec.Clip(value), want)
}

// check checks the value of a parameter that has a list of values, or names a job or a slot. The tag
// "empty" is for a header that must not count as left out if its value is empty.
func (p param) check(value string) error {
	enum := p.Tag.Get("enum")
	switch {
	case enum != "" && !slices.Contains(strings.Split(enum, ","), value):
		return p.invalid(value, strings.ReplaceAll(enum, ",", ", "))
	case value == "" && p.Tag.Get("empty") == "error":
		return wrong(p.name, "%s is empty: send a value, or leave it out", p.name)
	case p.name == "job":
		return blame(p.name, codec.ValidateName("job", value))
	case p.name == "id":
		_, err := job.ParseSlotID(value)
		return blame(p.name, err)
	}
	return nil
}

// bounds returns the bounds of a number: its tags "min" and "max".
func (p param) bounds() (low, high int) {
	low, _ = strconv.Atoi(p.Tag.Get("min"))
	high, _ = strconv.Atoi(p.Tag.Get("max"))
	return low, high
}

// paging has the parameters that select a page of a listing.
type paging struct {
	Limit int    `query:"limit" min:"1" max:"5000" default:"5000" doc:"how many rows at most; a page may have fewer although others follow"`
	After string `query:"after" doc:"the member next of the previous page: the listing continues there"`
}

func (p paging) cursor() client.Cursor { return client.Cursor(p.After) }

func newPage[T row.Listed](c *call, p paging, rows []T, next client.Cursor, unreadable []error) row.Page[T] {
	page := row.NewPage(rows, p.Limit, next, unreadable)
	if page.Next != "" {
		c.linkNext(page.Next)
	}
	return page
}

// linkNext sets the header Link to the next page: the query of the request, with next as its cursor.
func (c *call) linkNext(next string) {
	c.query.Set("after", next)
	c.header.Set("Link", "<?"+c.query.Encode()+`>; rel="next"`)
}
