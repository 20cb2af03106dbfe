package torture

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/core"
	"github.com/cronce-io/cronce/internal/core/exchange"
	"github.com/cronce-io/cronce/internal/fleet/boot"
	"github.com/cronce-io/cronce/job"
	"github.com/cronce-io/cronce/lab/torture/promise"
)

// witness collects the writes of the namespace in the form in which the broker stores them. A
// bucket keeps only the last value of a key. But a stream can republish each message that it
// stores, with its sequence, its time and the sequence that it replaced. So the check also sees
// wrong writes that were overwritten. Core NATS carries the republished messages: a server that is
// killed does not republish its last writes, and the check accepts that some are missing.
//
// The witness listens on every server that torture starts, since one of them may be down.
type witness struct {
	namespace string

	mu          sync.Mutex
	seen        map[string]map[uint64]bool // sequences by stream: each connection delivers each write
	ledger      []promise.LedgerWrite
	nodes       []promise.NodeWrite
	marks       []promise.MarkWrite
	slots       []promise.SlotWrite
	locks       []promise.LockWrite
	acks        map[uint64]promise.Ack // by sequence of the message
	delivered   map[uint64]int         // the number of deliveries, by sequence of the message
	slotOf      map[uint64]job.Slot    // by sequence of the message
	state       map[job.Slot]job.State
	redelivered int
	late        int // redeliveries of a slot that was claimed or had its outcome
	batched     int // messages that were stored in batches
	unreadable  []string
}

func newWitness(namespace string) *witness {
	return &witness{
		namespace: namespace, seen: map[string]map[uint64]bool{}, acks: map[uint64]promise.Ack{}, delivered: map[uint64]int{},
		slotOf: map[uint64]job.Slot{}, state: map[job.Slot]job.State{},
	}
}

// republish configures the streams of the namespace to republish what they store.
func republish(ctx context.Context, js jetstream.JetStream, namespace string) error {
	for stream, source := range map[string]string{
		"KV_" + namespace + "_ledger": "$KV." + namespace + "_ledger.>",
		"KV_" + namespace + "_nodes":  "$KV." + namespace + "_nodes.>",
		"KV_" + namespace + "_state":  "$KV." + namespace + "_state.>",
		namespace + "_slots":          namespace + ".slot.>",
	} {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("look at stream %s: %w", stream, err)
		}
		cfg := s.CachedInfo().Config
		cfg.RePublish = &jetstream.RePublish{Source: source, Destination: namespace + ".republished." + stream + ".>"}
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			return fmt.Errorf("republish stream %s: %w", stream, err)
		}
	}
	return nil
}

// listen collects the republished writes, and the workers' answers to messages, that one server sends
// to this connection. It goes on until the connection is closed.
func (w *witness) listen(nc *nats.Conn) error {
	subjects := map[string]nats.MsgHandler{
		w.namespace + ".republished.>":            w.recordWrite,
		"$JS.ACK." + w.namespace + "_slots.>":     w.recordAck,
		"$JS.ACK.*.*." + w.namespace + "_slots.>": w.recordAck,
	}
	for subject, handler := range subjects {
		sub, err := nc.Subscribe(subject, handler)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", subject, err)
		}
		if err := sub.SetPendingLimits(-1, -1); err != nil {
			return err
		}
	}
	return nc.Flush()
}

// recordWrite records a republished write, unless another connection has delivered it before.
func (w *witness) recordWrite(m *nats.Msg) {
	stream := m.Header.Get("Nats-Stream")
	seq, err1 := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	last, err2 := strconv.ParseUint(m.Header.Get("Nats-Last-Sequence"), 10, 64)
	at, err3 := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err1 != nil || err2 != nil || err3 != nil {
		return // not a republished write
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen[stream] == nil {
		w.seen[stream] = map[uint64]bool{}
	}
	if w.seen[stream][seq] {
		return
	}
	w.seen[stream][seq] = true
	if m.Header.Get("Nats-Batch-Id") != "" {
		w.batched++
	}
	subject := m.Header.Get("Nats-Subject")
	gone := m.Header.Get("KV-Operation") != "" || m.Header.Get("Nats-Marker-Reason") != ""
	err := error(nil)
	switch strings.TrimPrefix(stream, "KV_"+w.namespace+"_") {
	case "ledger":
		err = w.wroteLedger(promise.LedgerWrite{Seq: seq, Last: last, Time: at, Gone: gone}, subject, m.Data)
	case "nodes":
		if gone {
			return // the record of a node that ended was removed
		}
		n := promise.NodeWrite{Seq: seq, Last: last, Time: at}
		if n.Node, err = exchange.DecodeNode(m.Data); err == nil {
			w.nodes = append(w.nodes, n)
		}
	case "state":
		key := strings.TrimPrefix(subject, "$KV."+stream[len("KV_"):]+".")
		if strings.HasPrefix(key, "lock.") {
			l := promise.LockWrite{Seq: seq, Last: last, Time: at, Gone: gone}
			if !gone {
				l.Lock, err = core.DecodeLock(m.Data)
			}
			w.locks = append(w.locks, l)
		}
		if key != "watermark" {
			break
		}
		mark := promise.MarkWrite{Seq: seq, Time: at}
		if mark.Mark, err = exchange.DecodeWatermark(m.Data); err == nil {
			w.marks = append(w.marks, mark)
		}
	default:
		s := promise.SlotWrite{Seq: seq, Time: at, ID: m.Header.Get(core.HeaderMsgID)}
		if s.Message, err = core.ParseMessage(m.Header); err == nil {
			w.slots, w.slotOf[seq] = append(w.slots, s), s.Message.Slot
		}
	}
	if err != nil {
		w.unreadable = append(w.unreadable, fmt.Sprintf("%s at %d of %s: %v", subject, seq, stream, err))
	}
}

func (w *witness) wroteLedger(l promise.LedgerWrite, subject string, data []byte) (err error) {
	if l.Slot, err = job.ParseSlotKey(strings.TrimPrefix(subject, "$KV."+w.namespace+"_ledger.")); err != nil {
		return err
	}
	if !l.Gone {
		if l.Record, err = exchange.DecodeRecord(data); err != nil {
			return err
		}
	}
	w.ledger = append(w.ledger, l)
	w.state[l.Slot] = l.Record.State
	return nil
}

// recordAck records a worker's answer to a message: the first ack or termination, which settles the
// message, and the number of deliveries so far, which the subject of every answer has.
func (w *witness) recordAck(m *nats.Msg) {
	now := boot.Now()
	tokens := strings.Split(m.Subject, ".")
	// $JS.ACK[.domain.account].stream.consumer.delivered.sequence...
	at := 2
	for at < len(tokens) && tokens[at] != w.namespace+"_slots" {
		at++
	}
	if at+3 >= len(tokens) {
		return
	}
	delivered, err1 := strconv.Atoi(tokens[at+2])
	seq, err2 := strconv.ParseUint(tokens[at+3], 10, 64)
	if err1 != nil || err2 != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if delivered > max(w.delivered[seq], 1) {
		w.delivered[seq] = delivered
		w.redelivered++
		if state := w.state[w.slotOf[seq]]; state == job.Running || state.Final() {
			w.late++
		}
	}
	if word := string(m.Data); word != "" && !strings.HasPrefix(word, "+ACK") && !strings.HasPrefix(word, "+TERM") {
		return
	}
	if _, ok := w.acks[seq]; !ok {
		w.acks[seq] = promise.Ack{Seq: seq, Boot: now}
	}
}

// messagesOf returns the sequences of the unsettled messages of slots that run on nodes whose names
// have this prefix.
func (w *witness) messagesOf(prefix string) []uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	owner := map[job.Slot]string{}
	for _, l := range w.ledger {
		delete(owner, l.Slot)
		if l.Record.State == job.Running {
			owner[l.Slot] = l.Record.Node
		}
	}
	var all []uint64
	for _, s := range w.slots {
		if _, acked := w.acks[s.Seq]; !acked && strings.HasPrefix(owner[s.Message.Slot], prefix) {
			all = append(all, s.Seq)
		}
	}
	return all
}

// counts counts the slots that have an outcome. The tally has the messages that were redelivered, or stored
// in batches.
func (w *witness) counts() (outcomes int, tally promise.Tally) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, state := range w.state {
		if state.Final() {
			outcomes++
		}
	}
	return outcomes, promise.Tally{Redelivered: w.redelivered, Late: w.late, Batched: w.batched}
}

// into adds what was collected to a history. It returns the errors of the values that could not be read.
func (w *witness) into(h *promise.History) (unreadable []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.Ledger, h.Nodes, h.Marks, h.Slots, h.Locks = w.ledger, w.nodes, w.marks, w.slots, w.locks
	slices.SortFunc(h.Locks, func(a, b promise.LockWrite) int { return cmp.Compare(a.Seq, b.Seq) })
	slices.SortFunc(h.Marks, func(a, b promise.MarkWrite) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, a := range w.acks {
		h.Acks = append(h.Acks, a)
	}
	return w.unreadable
}

// askTime adds a sample of the broker's clock to c.
func askTime(ctx context.Context, nc *nats.Conn, stream string, c *promise.Clock) error {
	sent := boot.Now()
	m, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.INFO."+stream, nil)
	got := boot.Now()
	if err != nil {
		return err
	}
	var answer struct {
		Time time.Time `json:"ts"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Time.IsZero() {
		return fmt.Errorf("the broker's answer has no time: %q", m.Data)
	}
	c.Add(sent, got, answer.Time)
	return nil
}
