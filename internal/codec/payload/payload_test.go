package payload_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
	"github.com/cronce-io/cronce/internal/codec/payload"
)

type item struct {
	SKU   string  `json:"sku"`
	Price float64 `json:"price"`
	Count int8    `json:"count,omitempty"`
}

type base struct {
	ID    string
	Shade color
	Name  string `json:"name"`
}

type color string

func (c *color) UnmarshalText(text []byte) error {
	if string(text) != "red" && string(text) != "blue" {
		return fmt.Errorf("color %q: want red or blue", text)
	}
	*c = color(text)
	return nil
}

type order struct {
	base
	Customer string            `json:"customer"`
	Items    []item            `json:"items"`
	Since    time.Time         `json:"since,omitzero"`
	Tags     map[string]string `json:"tags"`
	Years    map[int]bool      `json:"years"`
	Pair     [2]int            `json:"pair"`
	Number   int               `json:"number,string"`
	Parent   *order            `json:"parent"`
	Any      any               `json:"any"`
	Raw      json.RawMessage   `json:"raw"`
	Bytes    []byte            `json:"bytes"`
	Secret   string            `json:"-"`
	Name     int               // hides that of base, which is deeper, only by its own name
	//lint:ignore U1000 JSON cannot set it
	hidden int //nolint:unused // JSON cannot set it
}

func TestDecodeNamesTheMemberThatIsWrong(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"items":[{"price":1},{},{},{"price":"free"}]}`: `items[3].price: got string, want float64`,
		`{"items":[{"prise":1}]}`:                        `items[0].prise: unknown member: did you mean "price"?`,
		`{"items":[{"Price":1}]}`:                        `items[0].Price: unknown member: did you mean "price"?`,
		`{"items":[{"zzzzzzzz":1}]}`:                     `items[0].zzzzzzzz: unknown member: want one of count, price, sku`,
		`{"items":[{"count":300}]}`:                      `items[0].count: got number 300, want int8`,
		`{"items":[{"count":1.5}]}`:                      `items[0].count: got number 1.5, want int8`,
		`{"items":{"price":1}}`:                          `items: got object, want []payload_test.item`,
		`{"items":7}`:                                    `items: got number, want []payload_test.item`,
		`{"customer":[]}`:                                `customer: got array, want string`,
		`{"customer":"a","customer":"b"}`:                `customer: given twice`,
		`{"any":{"a":[{"b":1,"b":1}]}}`:                  `any.a[0].b: given twice`,
		`{"tags":{"a":"1","a":"2"}}`:                     `tags.a: given twice`,
		`{"tags":{"a b":1}}`:                             `tags."a b": got number, want string`,
		`{"years":{"x":true}}`:                           `years.x: got number x, want int`,
		`{"pair":[1,2,3]}`:                               `pair: too many elements, want 2`,
		`{"number":7}`:                                   `number: want a string with int in it`,
		`{"number":null,"customer":1}`:                   `customer: got number, want string`,
		`{"number":"x"}`:                                 `number: want a string with int in it`,
		`{"since":"yesterday"}`:                          `since: parsing time`,
		`{"parent":{"parent":{"customer":1}}}`:           `parent.parent.customer: got number, want string`,
		`{"Shade":"green"}`:                              `Shade: color "green": want red or blue`,
		`{"Secret":"x"}`:                                 `Secret: unknown member`,
		`{"-":"x"}`:                                      `-: unknown member`,
		`{"hidden":1}`:                                   `hidden: unknown member`,
		`{"base":{}}`:                                    `base: unknown member`,
		`[]`:                                             `got array, want payload_test.order`,
		`"x"`:                                            `got string, want payload_test.order`,
		`{} {}`:                                          `not one JSON value: invalid character '{' after top-level value, at byte 4`,
		`{"customer":`:                                   `not one JSON value: unexpected end of JSON input`,
		strings.Repeat(`[`, 20000):                       `not one JSON value: `,
	} {
		var v order
		err := payload.Decode(json.RawMessage(in), &v)
		if !errors.Is(err, codec.ErrInvalid) || !strings.Contains(err.Error(), "invalid payload: "+want) {
			t.Errorf("%.60s: %v, want %q", in, err, want)
		}
	}
}

func TestDecodeReadsWhatEncodingJSONReads(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`{}`, ` { } `, `null`, `{"customer":null,"items":null,"parent":null}`,
		`{"customer":"a","items":[{"sku":"x","price":1e3,"count":-7},{}],"since":"2026-11-22T00:00:00Z"}`,
		`{"tags":{"a":"1","b":"2"},"years":{"2026":true},"pair":[1],"number":"7"}`,
		`{"ID":"x","Shade":"red","name":"n","Name":3,"parent":{"parent":{"customer":"a"}}}`,
		`{"any":{"a":[1,{"b":null}]},"raw":{"z":1,"z":2},"bytes":"AAEC"}`,
	} {
		var got, want order
		if err := json.Unmarshal([]byte(in), &want); err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		if err := payload.Decode(json.RawMessage(in), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", in, got, err, want)
		}
	}
}

// Its field Leaf is embedded twice, so encoding/json knows none.
type (
	leaf  struct{ Leaf int }
	left  struct{ leaf }
	right struct{ leaf }
	twins struct {
		left
		right
	}
)

func TestDecodeOfOtherTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		dst      any
		in, says string
	}{
		{new(int), `7`, ""},
		{new(int), `"7"`, "got string, want int"},
		{new([]string), `["a",1]`, "[1]: got number, want string"},
		{new(any), `{"a":1,"a":2}`, "a: given twice"},
		{new(map[string]any), `{"a":{"b":[]}}`, ""},
		{new(struct{}), `{}`, ""},
		{new(struct{}), `{"a":1}`, "a: unknown member: want none"},
		{new(json.RawMessage), `{"a":1,"a":2}`, ""},
		{new(*order), `{"customer":1}`, "customer: got number, want string"},
		{new(chan int), `1`, "want chan int"},
		{new(fmt.Stringer), `1`, "want fmt.Stringer"},
		{new(twins), `{"Leaf":1}`, "Leaf: unknown member"},
		{new(left), `{"Leaf":1}`, ""},
	} {
		err := payload.Decode(json.RawMessage(c.in), c.dst)
		if (err != nil) != (c.says != "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s into %T: %v, want %q", c.in, c.dst, err, c.says)
		}
	}
}

func TestDecodeLeavesTheValueAloneWithoutAPayload(t *testing.T) {
	t.Parallel()
	v := order{Customer: "a"}
	if err := payload.Decode(nil, &v); err != nil || v.Customer != "a" {
		t.Errorf("%+v, %v", v, err)
	}
}

// What Decode accepts, encoding/json accepts too, with the same result.
func FuzzDecodeAcceptsNothingThatEncodingJSONRefuses(f *testing.F) {
	f.Add([]byte(`{"items":[{"price":1}],"tags":{"a":"b"},"parent":{"pair":[1,2]}}`))
	f.Add([]byte(`{"number":"1","ID":"x","any":[{}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var got, want order
		err := payload.Decode(in, &got)
		refused := json.Unmarshal(in, &want)
		switch {
		case len(in) == 0:
		case err == nil && (refused != nil || !reflect.DeepEqual(got, want)):
			t.Errorf("accepted as %+v; encoding/json: %+v, %v", got, want, refused)
		case err != nil && len(err.Error()) > 1000:
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
