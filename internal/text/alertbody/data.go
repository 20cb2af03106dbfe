package alertbody

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The kinds of alerts.
const (
	Failed    = "failed"
	Expired   = "expired"
	Missed    = "missed"
	Late      = "late"
	Recovered = "recovered"
	Succeeded = "succeeded"
)

// Data is what an alert says. Templates name its fields.
type Data struct {
	// Alert is the kind: failed, expired, missed, late, recovered or succeeded.
	Alert string `json:"alert"`

	// Namespace, Job and Slot are names. Slot is the slot ID.
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Slot      string `json:"slot"`

	// Title is the alert in a few words, such as "report failed".
	Title string `json:"title"`

	// Time is when the slot got its outcome, or was found late. Instant is the slot's
	// instant; the zero time for a triggered run.
	Time    time.Time `json:"time,omitzero"`
	Instant time.Time `json:"instant,omitzero"`

	// Attempt counts the attempts of the slot. Fence is that of the last one.
	Attempt int    `json:"attempt,omitempty"`
	Fence   uint64 `json:"fence,omitempty"`

	// Node is the node that published the alert.
	Node string `json:"node,omitempty"`

	// Error is the error of the last attempt, or the reason for the outcome. Output is the end
	// of the output of the last attempt. Both may be empty.
	Error  string `json:"error,omitempty"`
	Output string `json:"output,omitempty"`

	// Count and Last are set for a range of missed slots: their number, and the instant of
	// the last one.
	Count int       `json:"count,omitempty"`
	Last  time.Time `json:"last,omitzero"`

	// Since is the slot that failed before the job recovered. It is empty in other alerts.
	Since string `json:"since,omitempty"`

	// Key is the secret that the alert names with key, such as PagerDuty's integration key.
	// {{json .}} leaves it out.
	Key string `json:"-"`
}

// maxText bounds the error and the output of an alert, each in bytes. maxRead bounds the part of
// each that is cleaned before it is cut to maxText.
const (
	maxText = 4 << 10
	maxRead = 16 << 10
)

// Clean returns the data with its title, and with texts that every service can show: valid
// UTF-8 without control characters and without marks that change the direction of text.
func (d Data) Clean() Data {
	d.Error = head(clean(d.Error[:min(len(d.Error), maxRead)]), maxText, bytes)
	d.Output = tail(clean(d.Output[max(0, len(d.Output)-maxRead):]), maxText, bytes)
	d.Slot, d.Since, d.Node = clean(d.Slot), clean(d.Since), clean(d.Node)
	d.Title = d.title()
	return d
}

func (d Data) title() string {
	name := d.Job
	if d.Namespace != "" && d.Namespace != "cronce" {
		name = d.Namespace + "/" + name
	}
	switch d.Alert {
	case Missed:
		if d.Count > 1 {
			return fmt.Sprintf("%s missed %d slots", name, d.Count)
		}
		return name + " missed a slot"
	case Late:
		return name + " is late"
	}
	return name + " " + d.Alert
}

// key is the same for all alerts of a job, so that a service can match the recovery with the
// failure.
func (d Data) key() string { return d.Namespace + "/" + d.Job }

// byNews returns good if the alert is good news, warning for a slot that is late or was missed, and
// bad for a failure.
func byNews[T any](d Data, good, warning, bad T) T {
	switch d.Alert {
	case Recovered, Succeeded:
		return good
	case Late, Missed:
		return warning
	}
	return bad
}

// fact is one line of a message.
type fact struct{ name, value string }

func (f fact) String() string { return f.name + ": " + f.value }

// facts returns what a message says about the slot besides its error and its output.
func (d Data) facts() []fact {
	facts := []fact{{"Slot", d.Slot}}
	if d.Count > 1 {
		facts = append(facts, fact{"Until", d.Last.UTC().Format(time.RFC3339)})
	}
	if d.Attempt > 0 {
		facts = append(facts, fact{"Attempt", fmt.Sprint(d.Attempt)})
	}
	if d.Since != "" {
		facts = append(facts, fact{"Failed before", d.Since})
	}
	return append(facts, fact{"Node", d.Node})
}

// clean returns s as valid UTF-8, without control characters and marks that change how other
// characters are shown. Line breaks and tabs stay.
func clean(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	return strings.TrimRight(strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029' || r == '\ufeff':
			return -1
		}
		return r
	}, s), "\n\t ")
}

// elided replaces the part that was cut off a text.
const elided = "…"

// width returns how many units of a service's limit a rune takes.
type width func(rune) int

// utf16 counts UTF-16 code units, as JavaScript does. A service may count characters instead,
// which gives no larger number.
func utf16(r rune) int {
	if r > 0xffff {
		return 2
	}
	return 1
}

func bytes(r rune) int { return utf8.RuneLen(r) }

// head returns the beginning of s, in at most limit units.
func head(s string, limit int, w width) string { return cut(s, limit, w, true) }

// tail returns the end of s, in at most limit units.
func tail(s string, limit int, w width) string { return cut(s, limit, w, false) }

func cut(s string, limit int, w width, beginning bool) string {
	total := 0
	for _, r := range s {
		total += w(r)
	}
	if total <= limit {
		return s
	}
	room := limit - 3*w('x') // for elided, in bytes too
	at := 0
	for i, r := range s {
		if beginning {
			if room -= w(r); room < 0 {
				at = i
				break
			}
			continue
		}
		if total <= room {
			at = i
			break
		}
		total -= w(r)
		at = i + utf8.RuneLen(r)
	}
	switch {
	case limit < 3:
		return ""
	case beginning:
		return s[:at] + elided
	}
	return elided + s[at:]
}
