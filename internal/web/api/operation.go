package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/cronce-io/cronce/client"
	"github.com/cronce-io/cronce/internal/api/fault"
	"github.com/cronce-io/cronce/internal/web/stream"
)

// operation is one method of one path. Each field of its input, a struct, has one of the tags
// "path", "query", "header" and "body": params.go reads the input, and openapi.go describes it.
type operation struct {
	id, method, path string
	summary, text    string
	params           []param      // the fields of its input
	out              reflect.Type // of the answer, in JSON; nil: a stream of events
	answers          []answer
	faults           []fault.Code

	// options and query are those of the documentation's curl line.
	options, query string

	serve func(a *API, w http.ResponseWriter, r *http.Request) error
}

// answer is a status that an operation returns if it succeeds.
type answer struct {
	status int
	what   string
	header string // one that it has; "": none
}

// call is one request to an operation.
type call struct {
	// Client gives orders in the name of the user.
	*client.Client

	api     *API
	status  int
	header  http.Header
	query   url.Values      // of the request
	request context.Context // without the timeout of most operations
	to      *http.ResponseController
}

// extend lets an operation take d, longer than others: it moves the deadline for writing the answer.
func (c *call) extend(d time.Duration) {
	_ = c.to.SetWriteDeadline(time.Now().Add(d + stream.WriteTime)) // not all servers support deadlines
}

// rawOperation returns an operation that calls do for each request. do writes the answer, of type out.
func rawOperation[In any](id, method, path, summary string, out reflect.Type, do func(a *API, w http.ResponseWriter, r *http.Request, in In) error) operation {
	params := paramsOf(reflect.TypeFor[In]())
	return operation{
		id: id, method: method, path: path, summary: summary, params: params, out: out,
		answers: []answer{{status: http.StatusOK, what: "Done"}},
		serve: func(a *API, w http.ResponseWriter, r *http.Request) error {
			var in In
			if err := decode(r, params, reflect.ValueOf(&in).Elem()); err != nil {
				return err
			}
			return do(a, w, r, in)
		},
	}
}

// newOperation returns an operation that calls do for each request, and answers with what do returns.
func newOperation[In, Out any](id, method, path, summary string, do func(ctx context.Context, c *call, in In) (Out, error)) operation {
	return rawOperation(id, method, path, summary, reflect.TypeFor[Out](), func(a *API, w http.ResponseWriter, r *http.Request, in In) error {
		ctx, cancel := context.WithTimeout(r.Context(), a.cfg.Patience)
		defer cancel()
		c, err := a.call(w, r)
		if err != nil {
			return err
		}
		out, err := do(ctx, c, in)
		if err != nil {
			return err
		}
		data, err := json.Marshal(out)
		if err != nil {
			return err
		}
		c.header.Set("Content-Type", "application/json")
		c.header.Set("Cache-Control", "no-store")
		w.WriteHeader(c.status)
		if r.Method != http.MethodHead {
			_, _ = w.Write(append(data, '\n')) // fails only if the client is gone
		}
		return nil
	})
}

// says sets the text of the documentation below the summary.
func (o operation) says(text string) operation { o.text = text; return o }

// returns replaces the answers of an operation.
func (o operation) returns(answers ...answer) operation { o.answers = answers; return o }

// fails adds codes with which the operation can fail, besides those that all operations have.
func (o operation) fails(codes ...fault.Code) operation {
	o.faults = append(o.faults, codes...)
	return o
}

// curl sets the options of the documentation's curl line.
func (o operation) curl(options string) operation { o.options = options; return o }

// asks sets the query of the documentation's curl line.
func (o operation) asks(query string) operation { o.query = query; return o }

// samples replaces the parameters of a path with example values, for the documentation.
var samples = strings.NewReplacer("{job}", "report", "{id}", "report:@invoice-7")

// sample returns the documentation's curl line.
func (o operation) sample() string {
	address := "http://127.0.0.1:8080" + Prefix + samples.Replace(o.path)
	if o.query != "" {
		address = "'" + address + "?" + o.query + "'"
	}
	return strings.Join(strings.Fields("curl "+o.options+" "+address), " ")
}
