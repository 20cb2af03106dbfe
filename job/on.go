package job

import (
	"fmt"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// On names the messages of which each is one run: those on Subject in Stream. Its
// zero value is none.
type On struct {
	// Stream is a JetStream stream, Subject one of its subjects; it may have
	// wildcards.
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
}

// IsZero reports whether no messages are named.
func (o On) IsZero() bool { return o == On{} }

func (o On) String() string { return "on " + o.Stream + " " + o.Subject }

// validate says what is wrong with it; zero is right.
func (o On) validate() error {
	switch {
	case o.IsZero():
		return nil
	case o.Stream == "" || len(o.Stream) > 255 || strings.ContainsAny(o.Stream, " .*>/\\") || hasControl(o.Stream):
		return fmt.Errorf("%w on.stream %q: want the name of a stream, like ORDERS", ErrInvalid, codec.Clip(o.Stream))
	}
	return validateSubject("on.subject", o.Subject, true)
}
