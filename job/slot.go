package job

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/codec"
)

const (
	idLayout  = "2006-01-02T15:04:05Z"
	keyLayout = "20060102T150405Z"
)

// Slot is one planned run of one job: the job and its nominal instant, in UTC
// and whole seconds. A triggered run has a Token in place of an instant; one of
// the two is set, never both. Slots are comparable with == when At is in UTC
// without a monotonic reading, as NewSlot and the parsers return it.
type Slot struct {
	Job   string
	At    time.Time
	Token string

	// Range marks the slot as the first of a range of missed ones, which share
	// one message and one record.
	Range bool

	// Shard is the part of the slot that is meant, from 1 to Shards; both are zero
	// for the slot as a whole, also for one that has shards. Each shard has a
	// message, a record, retries and an outcome of its own.
	Shard, Shards int
}

// Part is shard i of the slot's n.
func (s Slot) Part(i, n int) Slot {
	s.Shard, s.Shards = i, n
	return s
}

// Whole is the slot that a shard is a part of.
func (s Slot) Whole() Slot { return s.Part(0, 0) }

// NewSlot is the slot of job at t, cut to whole seconds, in UTC.
func NewSlot(job string, t time.Time) Slot {
	return Slot{Job: job, At: time.Unix(t.Unix(), 0).UTC()}
}

// ID is the one name of the slot, the same on every node: Nats-Msg-Id, log
// field, Idempotency-Key. "report:2026-11-21T07:00:00Z", "report:@TOKEN" for a
// triggered run, "report:m.2026-11-21T07:00:00Z" for a range of missed slots, and
// "#3of8" behind either of the first two for a shard.
func (s Slot) ID() string {
	if s.Shards > 0 {
		return s.Whole().ID() + "#" + s.part()
	}
	if s.Token != "" {
		return s.Job + ":@" + s.Token
	}
	var b [len(idLayout) + 8]byte
	at := s.At.UTC().AppendFormat(b[:0], time.RFC3339) // as idLayout, in UTC, but faster
	if s.Range {
		return s.Job + ":m." + string(at)
	}
	return s.Job + ":" + string(at)
}

func (s Slot) String() string { return s.ID() }

func (s Slot) part() string { return strconv.Itoa(s.Shard) + "of" + strconv.Itoa(s.Shards) }

// shardSuffix is what stands behind the ID, or the key, of the whole slot.
var shardSuffix = regexp.MustCompile(`^(.*)[#.]([1-9][0-9]{0,2})of([1-9][0-9]{0,2})$`)

// shardLike is an end that no token has, so that no token's end is ever mistaken for
// a shard.
var shardLike = regexp.MustCompile(`#[0-9]+of[0-9]+$`)

// cutShard takes the shard off an ID or a key.
func cutShard(text string, mark byte) (whole string, i, n int, err error) {
	if n := len(text); n == 0 || text[n-1] < '0' || text[n-1] > '9' { // most are none, and need not be searched
		return text, 0, 0, nil
	}
	m := shardSuffix.FindStringSubmatch(text)
	if m == nil || text[len(m[1])] != mark {
		return text, 0, 0, nil
	}
	i, _ = strconv.Atoi(m[2])
	n, _ = strconv.Atoi(m[3])
	if n < 2 || n > MaxShards || i > n {
		return "", 0, 0, fmt.Errorf("%w shard %s of %q: want 1of2 to %dof%d", ErrInvalid, text[len(m[1])+1:], codec.Clip(text), MaxShards, MaxShards)
	}
	return m[1], i, n, nil
}

// Key is the slot's key in the ledger: "report.20261121T070000Z", or
// "report.t.TOKEN" with bytes outside [A-Za-z0-9_-] written =XX, because keys
// know neither colons nor spaces, or "report.m.20261121T070000Z" for a range;
// ".3of8" behind it for a shard.
func (s Slot) Key() string {
	if s.Shards > 0 {
		return s.Whole().Key() + "." + s.part()
	}
	if s.Token != "" {
		return s.Job + ".t." + escape(s.Token)
	}
	var b, k [len(idLayout) + 8]byte
	key := k[:0]
	for _, c := range s.At.UTC().AppendFormat(b[:0], time.RFC3339) {
		if c != '-' && c != ':' { // what is left is keyLayout
			key = append(key, c)
		}
	}
	if s.Range {
		return s.Job + ".m." + string(key)
	}
	return s.Job + "." + string(key)
}

// ParseSlotID is the inverse of Slot.ID. Its errors quote the input and say what
// would be right; they wrap ErrInvalid.
func ParseSlotID(id string) (Slot, error) {
	whole, i, n, err := cutShard(id, '#')
	if err != nil {
		return Slot{}, err
	}
	s, err := parseWholeID(whole)
	if err == nil && n > 0 && s.Range {
		err = fmt.Errorf("%w slot ID %q: a range has no shards", ErrInvalid, codec.Clip(id))
	}
	if err != nil {
		return Slot{}, err
	}
	return s.Part(i, n), nil
}

func parseWholeID(id string) (Slot, error) {
	name, rest, ok := strings.Cut(id, ":")
	if !ok {
		return Slot{}, fmt.Errorf("%w slot ID %q: want JOB:INSTANT like report:2026-11-21T07:00:00Z, or JOB:@TOKEN", ErrInvalid, codec.Clip(id))
	}
	if err := codec.ValidateName("job", name); err != nil {
		return Slot{}, fmt.Errorf("slot ID %q: %w", codec.Clip(id), err)
	}
	if token, triggered := strings.CutPrefix(rest, "@"); triggered {
		if err := ValidateToken(token); err != nil {
			return Slot{}, fmt.Errorf("slot ID %q: %w", codec.Clip(id), err)
		}
		return Slot{Job: name, Token: token}, nil
	}
	instant, isRange := strings.CutPrefix(rest, "m.")
	at, err := time.Parse(time.RFC3339, instant)
	// Formatting back refuses what Parse is lenient about (fractions, other zones),
	// so that a slot has one spelling only.
	if err != nil || at.UTC().Format(time.RFC3339) != instant {
		return Slot{}, fmt.Errorf("%w slot ID %q: %q is not an instant in UTC and whole seconds, like 2026-11-21T07:00:00Z", ErrInvalid, codec.Clip(id), codec.Clip(rest))
	}
	return Slot{Job: name, At: at.UTC(), Range: isRange}, nil
}

// ParseSlotKey is the inverse of Slot.Key.
func ParseSlotKey(key string) (Slot, error) {
	whole, i, n, err := cutShard(key, '.')
	if err != nil {
		return Slot{}, err
	}
	s, err := parseWholeKey(whole)
	if err == nil && n > 0 && s.Range {
		err = fmt.Errorf("%w ledger key %q: a range has no shards", ErrInvalid, codec.Clip(key))
	}
	if err != nil {
		return Slot{}, err
	}
	return s.Part(i, n), nil
}

func parseWholeKey(key string) (Slot, error) {
	name, rest, ok := strings.Cut(key, ".")
	if !ok || codec.ValidateName("job", name) != nil {
		return Slot{}, fmt.Errorf("%w ledger key %q", ErrInvalid, codec.Clip(key))
	}
	if escaped, triggered := strings.CutPrefix(rest, "t."); triggered {
		token, err := unescape(escaped)
		if err == nil {
			err = ValidateToken(token)
		}
		if err != nil {
			return Slot{}, fmt.Errorf("%w ledger key %q: %w", ErrInvalid, codec.Clip(key), err)
		}
		return Slot{Job: name, Token: token}, nil
	}
	instant, isRange := strings.CutPrefix(rest, "m.")
	at, err := time.Parse(keyLayout, instant)
	if err != nil || at.Format(keyLayout) != instant {
		return Slot{}, fmt.Errorf("%w ledger key %q: %q is not an instant like %s", ErrInvalid, codec.Clip(key), codec.Clip(rest), keyLayout)
	}
	return Slot{Job: name, At: at.UTC(), Range: isRange}, nil
}

// ValidateToken refuses what cannot name a triggered run: nothing, more than
// MaxToken bytes, an end like /r2 (see reoffer) or #3of8, or bytes that a header cannot carry unchanged (controls, and
// spaces at either end, which the protocol trims: two tokens would be one).
func ValidateToken(token string) error {
	switch {
	case token == "":
		return fmt.Errorf("%w token: it is empty", ErrInvalid)
	case len(token) > MaxToken:
		return fmt.Errorf("%w token %q: %d bytes, at most %d", ErrInvalid, codec.Clip(token), len(token), MaxToken)
	case !utf8.ValidString(token):
		return fmt.Errorf("%w token %q: it is not UTF-8", ErrInvalid, token)
	case shardLike.MatchString(token):
		return fmt.Errorf("%w token %q: its end is how a shard is named", ErrInvalid, token)
	case codec.Reoffer.MatchString(token):
		return fmt.Errorf("%w token %q: %q at its end is how a message that was offered again is named", ErrInvalid, token, codec.Reoffer.FindString(token))
	case strings.TrimSpace(token) != token:
		return fmt.Errorf("%w token %q: it begins or ends with a space", ErrInvalid, token)
	}
	for i := range len(token) {
		if token[i] < ' ' || token[i] == 0x7f {
			return fmt.Errorf("%w token %q: byte %d is a control character", ErrInvalid, token, i)
		}
	}
	return nil
}

const hexDigits = "0123456789ABCDEF"

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if codec.Plain(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '=' {
			if !codec.Plain(s[i]) {
				return "", fmt.Errorf("byte %q should be escaped", s[i])
			}
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("escape at the end is cut short")
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 || codec.Plain(byte(hi<<4|lo)) {
			return "", fmt.Errorf("escape %q is not one that is ever written", s[i:i+3])
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), nil
}
