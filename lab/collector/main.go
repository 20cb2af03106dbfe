// Collector is an OpenTelemetry collector for tests. It prints its address, and then each span that it receives as a
// line of JSON, and ends with its standard input.
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "collector:", err)
		os.Exit(1)
	}
}

func run() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	server := &http.Server{Handler: &printer{out: json.NewEncoder(os.Stdout)}, ReadHeaderTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	_ = server.Close()
	<-served
	return err
}

// printer prints the spans of each request.
type printer struct {
	mu  sync.Mutex
	out *json.Encoder
}

// span is what the tests look at.
type span struct {
	Name, ID, Parent, Trace, Slot string
	Failed                        bool
	Node                          string
}

func (p *printer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	var sent collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(data, &sent)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		fmt.Fprintf(os.Stderr, "collector: request to %s: %v\n", r.URL, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, resource := range sent.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if err := p.out.Encode(spanOf(s)); err != nil {
					fmt.Fprintln(os.Stderr, "collector:", err)
				}
			}
		}
	}
}

func spanOf(s *trace.Span) span {
	one := span{
		Name: s.GetName(), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Trace: hex.EncodeToString(s.GetTraceId()), Failed: s.GetStatus().GetMessage() != "",
	}
	for _, a := range s.GetAttributes() {
		switch a.GetKey() {
		case "cronce.slot":
			one.Slot = a.GetValue().GetStringValue()
		case "cronce.node":
			one.Node = a.GetValue().GetStringValue()
		}
	}
	return one
}
