package job

import (
	"fmt"
	"strings"

	"github.com/cronce-io/cronce/internal/codec"
)

// On selects the messages that each start one run of a job. The zero value selects none.
type On struct {
	// Stream is the name of a JetStream stream, of up to 255 bytes. Subject is one of its
	// subjects, of up to 1,024 bytes, and may have wildcards.
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
}

// IsZero reports whether o selects no messages.
func (o On) IsZero() bool { return o == On{} }

// String returns "on STREAM SUBJECT".
func (o On) String() string { return "on " + o.Stream + " " + o.Subject }

// validate accepts the zero value.
func (o On) validate() error {
	switch {
	case o.IsZero():
		return nil
	case o.Stream == "" || len(o.Stream) > 255 || strings.ContainsAny(o.Stream, " .*>/\\") || hasControl(o.Stream):
		return fmt.Errorf("%w on.stream %q: want the name of a stream, like ORDERS", ErrInvalid, codec.Clip(o.Stream))
	}
	return validateSubject("on.subject", o.Subject, true)
}
