package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/docs/protocol"
)

// judge compares an answer with the expected one, and returns the first difference, or "". It does not
// compare the members in without.
func (c Case) judge(answer map[string]any, without []string) string {
	want, got := maps.Clone(c.want), maps.Clone(answer)
	for _, name := range without {
		delete(want, name)
		delete(got, name)
	}
	if f := protocol.FormOf(c.File); f.Unordered != "" {
		want, got = sorted(want, f.Unordered), sorted(got, f.Unordered)
	}
	if unknown := c.unknown(got); unknown != "" {
		return unknown
	}
	d := differ{file: c.File, musts: c.Musts}
	return d.members("", want, got)
}

// unknown returns an error text for a member that no answer of this file has. It is most likely
// misspelt, and would otherwise count as absent.
func (c Case) unknown(got map[string]any) string {
	f := protocol.FormOf(c.File)
	allowed := f.Answers
	if f.Steps != nil {
		allowed = []string{"steps"}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !slices.Contains(allowed, name) {
			return fmt.Sprintf("%q is no member of this answer: want one of %s", name, strings.Join(allowed, ", "))
		}
	}
	return ""
}

// sorted returns the members with the named list of messages in the order of their IDs.
func sorted(members map[string]any, list string) map[string]any {
	messages, ok := members[list].([]any)
	if !ok {
		return members
	}
	id := func(m any) string {
		message, _ := m.(map[string]any)
		headers, _ := message["headers"].(map[string]any)
		text, _ := headers["Nats-Msg-Id"].(string)
		return text
	}
	messages = slices.Clone(messages)
	slices.SortStableFunc(messages, func(a, b any) int { return strings.Compare(id(a), id(b)) })
	members = maps.Clone(members)
	members[list] = messages
	return members
}

// differ finds the first difference between two JSON values.
type differ struct {
	file  string
	musts []string
}

func (d differ) values(path string, want, got any) string {
	if isNone(want) && isNone(got) {
		return ""
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return differs(path, want, got)
		}
		return d.members(path, w, g)
	case []any:
		g, _ := got.([]any)
		return d.lists(path, w, g)
	case string:
		if g, ok := got.(string); ok && sameText(path, w, g) {
			return ""
		}
	case json.Number:
		// A client whose language cannot hold the number writes it as a string.
		if g, ok := got.(string); ok {
			got = json.Number(g)
		}
		if g, ok := got.(json.Number); ok && sameNumber(w, g) {
			return ""
		}
	case bool:
		if want == got {
			return ""
		}
	}
	return differs(path, want, got)
}

func (d differ) members(path string, want, got map[string]any) string {
	names := slices.Collect(maps.Keys(want))
	for name := range got {
		if _, both := want[name]; !both {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		at := path + "." + name
		if path == "" {
			at = name
		}
		if d.isFree(name, want[name], got[name]) || d.leaves(want, got) && (name == "action" || name == "delay") {
			continue
		}
		if where := d.values(at, want[name], got[name]); where != "" {
			return where
		}
	}
	return ""
}

func (d differ) lists(path string, want, got []any) string {
	for i := range max(len(want), len(got)) {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= len(want):
			return fmt.Sprintf("%s is %s: want only %d", at, short(got[i]), len(want))
		case i >= len(got):
			return fmt.Sprintf("%s is missing: want %s", at, short(want[i]))
		}
		if where := d.values(at, want[i], got[i]); where != "" {
			return where
		}
	}
	return ""
}

// isFree reports whether a client chooses the value of the member: a nonce, or the text of an error.
// The text of a cancellation is specified, and a client does not choose whether there is an error.
func (d differ) isFree(name string, want, got any) bool {
	w, _ := want.(string)
	g, _ := got.(string)
	switch name {
	case "nonce":
		return true
	case "error":
		if d.file == "clocks" || strings.HasPrefix(w, "cancelled by ") || strings.HasPrefix(w, "replaced by ") {
			return false
		}
		return w != "" && g != ""
	}
	return false
}

// leaves reports whether the client releases a slot (later) that the vector keeps while it is queued for
// its job's lock (wait), or whose message the vector acks because the slot's plan splits it otherwise.
// Section 15 of the protocol allows both.
func (d differ) leaves(want, got map[string]any) bool {
	isSplit := want["action"] == "ack" && slices.Contains(d.musts, "C-12")
	return d.file == "claims" && (want["action"] == "wait" || isSplit) && got["action"] == "later"
}

// isNone reports whether a value means the same as an absent one.
func isNone(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case string:
		return v == "" || v == "0s"
	case json.Number:
		return v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

// exact are parts of the paths of members whose spelling counts, although the value may look like an
// instant or a duration.
var exact = []string{".headers.", "canonical", "hash"}

// sameText reports whether two texts are equal, or are the same instant or duration in two
// spellings: a program may write 1m30s as 90s. Durations may differ by a microsecond, because a client
// may round them.
func sameText(path, want, got string) bool {
	if want == got {
		return true
	}
	for _, part := range exact {
		if strings.Contains("."+path, part) {
			return false
		}
	}
	if w, err := time.Parse(time.RFC3339Nano, want); err == nil {
		g, err := time.Parse(time.RFC3339Nano, got)
		return err == nil && w.Equal(g)
	}
	if w, err := time.ParseDuration(want); err == nil {
		g, err := time.ParseDuration(got)
		return err == nil && (w-g).Abs() <= time.Microsecond
	}
	return false
}

func sameNumber(want, got json.Number) bool {
	w, ok := new(big.Float).SetString(want.String())
	g, ok2 := new(big.Float).SetString(got.String())
	return ok && ok2 && w.Cmp(g) == 0
}

func differs(path string, want, got any) string {
	if got == nil {
		return fmt.Sprintf("%s is missing: want %s", path, short(want))
	}
	if isNone(want) {
		return fmt.Sprintf("%s is %s: want none", path, short(got))
	}
	w, g := text(want), text(got)
	same := 0
	for same < min(len(w), len(g)) && w[same] == g[same] {
		same++
	}
	from := max(0, same-mostText/4) // long texts are shown from just before their first difference
	return fmt.Sprintf("%s is %s: want %s", path, shortFrom(g, from), shortFrom(w, from))
}

// mostText is how many bytes of a value an error shows.
const mostText = 200

// short returns a value as JSON, shortened for an error.
func short(v any) string { return shortFrom(text(v), 0) }

func text(v any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // what was decoded can be encoded
	return strings.TrimSpace(b.String())
}

func shortFrom(text string, from int) string {
	if len(text) <= mostText {
		return text
	}
	before, after := "", ""
	if text = text[from:]; from > 0 {
		before = "..."
	}
	if len(text) > mostText {
		text, after = text[:mostText], "..."
	}
	return before + strings.ToValidUTF8(text, "") + after
}
