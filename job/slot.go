package job

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cronce-io/cronce/internal/codec"
)

const (
	idLayout  = "2006-01-02T15:04:05Z"
	keyLayout = "20060102T150405Z"
)

// Slot is one planned run of one job. Either At or Token is set. Slots that NewSlot,
// ParseSlotID and ParseSlotKey return can be compared with ==.
type Slot struct {
	Job string

	// At is the slot's instant, in UTC and whole seconds.
	At time.Time

	// Token names a triggered run, or a run that a message started.
	Token string

	// Range is true for the first of a range of missed slots, which share one record.
	Range bool

	// Shard is the number of one shard of a slot that is split, from 1 to Shards. Each shard has
	// its own record, retries and outcome. Both are zero for the whole slot.
	Shard, Shards int
}

// WithShard returns shard i of n of the slot.
func (s Slot) WithShard(i, n int) Slot {
	s.Shard, s.Shards = i, n
	return s
}

// Whole returns the slot that s is a shard of, or s itself.
func (s Slot) Whole() Slot { return s.WithShard(0, 0) }

// NewSlot returns the slot of a job at t, cut to whole seconds.
func NewSlot(job string, t time.Time) Slot {
	return Slot{Job: job, At: time.Unix(t.Unix(), 0).UTC()}
}

// ID returns the name of the slot, which is the same on every node, in logs, in messages
// (Nats-Msg-Id) and in requests (Idempotency-Key):
//
//	report:2026-11-21T07:00:00Z      the slot at an instant
//	report:@TOKEN                    a triggered run
//	report:2026-11-21T07:00:00Z#3of8 shard 3 of 8
//	report:m.2026-11-21T07:00:00Z    a range of missed slots
func (s Slot) ID() string {
	if s.Shards > 0 {
		return s.Whole().ID() + "#" + s.shard()
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

// String returns the ID.
func (s Slot) String() string { return s.ID() }

func (s Slot) shard() string { return strconv.Itoa(s.Shard) + "of" + strconv.Itoa(s.Shards) }

// shardSuffix matches the ID or the key of a shard: that of the whole slot, and a suffix.
var shardSuffix = regexp.MustCompile(`^(.*)[#.]([1-9][0-9]{0,2})of([1-9][0-9]{0,2})$`)

// shardLike matches what no token may end with, so that the end of a token is not taken for
// the suffix of a shard.
var shardLike = regexp.MustCompile(`#[0-9]+of[0-9]+$`)

// cutShard cuts the suffix of a shard off an ID (mark '#') or a key (mark '.').
func cutShard(text string, mark byte) (whole string, i, n int, err error) {
	if n := len(text); n == 0 || text[n-1] < '0' || text[n-1] > '9' { // most texts have no suffix: skip the search
		return text, 0, 0, nil
	}
	m := shardSuffix.FindStringSubmatch(text)
	if m == nil || text[len(m[1])] != mark {
		return text, 0, 0, nil
	}
	if _, rest, _ := strings.Cut(m[1], "."); mark == '.' && rest == "t" {
		return text, 0, 0, nil // report.t.3of8 is the key of the token 3of8
	}
	i, _ = strconv.Atoi(m[2])
	n, _ = strconv.Atoi(m[3])
	if n < 2 || n > MaxShards || i > n {
		return "", 0, 0, fmt.Errorf("%w shard %s of %q: want 1of2 to %dof%d", ErrInvalid, text[len(m[1])+1:], codec.Clip(text), MaxShards, MaxShards)
	}
	return m[1], i, n, nil
}

// Key returns the slot's key in the ledger. These are the keys of the four slots listed at ID:
//
//	report.20261121T070000Z
//	report.t.TOKEN            bytes outside [A-Za-z0-9_-] are written as =XX
//	report.20261121T070000Z.3of8
//	report.m.20261121T070000Z
func (s Slot) Key() string {
	if s.Shards > 0 {
		return s.Whole().Key() + "." + s.shard()
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

// ParseSlotID reads what Slot.ID returns. Its errors quote the input, state what would be
// valid, and wrap ErrInvalid.
func ParseSlotID(id string) (Slot, error) {
	return parseSlot("slot ID", id, '#', parseWholeID)
}

// parseSlot parses an ID or a key, which may have the suffix of a shard.
func parseSlot(what, text string, mark byte, parseWhole func(string) (Slot, error)) (Slot, error) {
	whole, i, n, err := cutShard(text, mark)
	if err != nil {
		return Slot{}, err
	}
	s, err := parseWhole(whole)
	if err == nil && n > 0 && s.Range {
		err = fmt.Errorf("%w %s %q: a range has no shards", ErrInvalid, what, codec.Clip(text))
	}
	if err != nil {
		return Slot{}, err
	}
	return s.WithShard(i, n), nil
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
	// time.Parse also accepts fractions and other zones. Formatting the result and comparing
	// refuses these, so that a slot has a single ID. Slots begin with the year 1.
	if err != nil || at.Year() < 1 || at.UTC().Format(time.RFC3339) != instant {
		return Slot{}, fmt.Errorf("%w slot ID %q: %q is not an instant in UTC and whole seconds, like 2026-11-21T07:00:00Z", ErrInvalid, codec.Clip(id), codec.Clip(rest))
	}
	return Slot{Job: name, At: at.UTC(), Range: isRange}, nil
}

// ParseSlotKey reads what Slot.Key returns. Its errors wrap ErrInvalid.
func ParseSlotKey(key string) (Slot, error) {
	return parseSlot("ledger key", key, '.', parseWholeKey)
}

func parseWholeKey(key string) (Slot, error) {
	name, rest, ok := strings.Cut(key, ".")
	if !ok || codec.ValidateName("job", name) != nil {
		return Slot{}, fmt.Errorf("%w ledger key %q: want JOB.INSTANT like report.20261121T070000Z, or JOB.t.TOKEN", ErrInvalid, codec.Clip(key))
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
	if err != nil || at.Year() < 1 || at.Format(keyLayout) != instant {
		return Slot{}, fmt.Errorf("%w ledger key %q: %q is not an instant like %s", ErrInvalid, codec.Clip(key), codec.Clip(rest), keyLayout)
	}
	return Slot{Job: name, At: at.UTC(), Range: isRange}, nil
}

// ValidateToken checks the name of a triggered run: 1 to MaxToken bytes of UTF-8, without
// control characters and without spaces at either end, which a NATS header would not keep. Some
// clients remove U+FEFF there too, so it counts as a space. It must not end like /r2, which marks a
// message that was published again, or like #3of8, which marks a shard. Its errors wrap ErrInvalid.
func ValidateToken(token string) error {
	switch {
	case token == "":
		return fmt.Errorf("%w token: it is empty", ErrInvalid)
	case len(token) > MaxToken:
		return fmt.Errorf("%w token %q: %d bytes, at most %d", ErrInvalid, codec.Clip(token), len(token), MaxToken)
	case !utf8.ValidString(token):
		return fmt.Errorf("%w token %q: it is not UTF-8", ErrInvalid, token)
	case shardLike.MatchString(token):
		return fmt.Errorf("%w token %q: it ends like the ID of a shard, such as #3of8", ErrInvalid, token)
	case codec.Reoffer.MatchString(token):
		return fmt.Errorf("%w token %q: it ends in %q, which marks a message that was published again", ErrInvalid, token, codec.Reoffer.FindString(token))
	case strings.TrimFunc(token, func(r rune) bool { return unicode.IsSpace(r) || r == '\uFEFF' }) != token:
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
			return "", fmt.Errorf("escape %q: want = and two upper-case hex digits of a byte outside [A-Za-z0-9_-]", s[i:i+3])
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), nil
}

// TraceID returns the ID of the trace of a slot and its shards: the first 16 bytes of the
// SHA-256 of "<namespace>/<slot ID>". It depends on names only, so every node that publishes
// or runs the slot continues the same trace, and you can find the trace by the slot ID.
func (s Slot) TraceID(namespace string) [16]byte {
	sum := sha256.Sum256([]byte(namespace + "/" + s.Whole().ID()))
	return [16]byte(sum[:16])
}
