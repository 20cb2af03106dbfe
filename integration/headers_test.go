//go:build unix

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/internal/broker/layout"
	"github.com/cronce-io/cronce/internal/broker/space"
	"github.com/cronce-io/cronce/internal/lab/natstest"
	"github.com/cronce-io/cronce/kv"
)

// headerRoles are the columns of the table of headers in docs/threat-model.md.
var headerRoles = []struct {
	column string
	layout.Access
}{
	{"producer", layout.Access{Roles: []layout.Role{layout.RoleProducer}}},
	{"worker", layout.Access{Roles: []layout.Role{layout.RoleWorker}}},
	{"worker of one job", layout.Access{Roles: []layout.Role{layout.RoleWorker}, Queues: []string{"reports"}, Jobs: []string{"report"}, Followers: []string{"next"}}},
	{"operator", layout.Access{Roles: []layout.Role{layout.RoleOperator}}},
	{"viewer", layout.Access{Roles: []layout.Role{layout.RoleViewer}}},
	{"caller", layout.Access{Roles: []layout.Role{layout.RoleCaller}, Jobs: []string{"report"}}},
	{"setup", layout.Access{Roles: []layout.Role{layout.RoleSetup}}},
}

// own are subjects of a stream or bucket on which a login may publish about its own job "report", and
// with which the server answers.
var own = []string{
	"cronce.slot.default.report", "cronce.slot.default.next", "cronce.timer.set.report.mine", "cronce.timer.due.default.report",
	"cronce.event.ordered.report", "cronce.event.failed.report", "$KV.cronce_jobs.report", "$KV.cronce_ledger.report.t.mine",
	"$KV.cronce_state.lock.report", "$KV.cronce_state.alert.report", "$KV.cronce_state.watermark", "$KV.cronce_state.settings", "$KV.cronce_nodes.a-1-1-x",
}

// others are what streams and buckets hold about the job "other", by subject.
var others = []string{
	"cronce.slot.default.other", "cronce.timer.set.other.theirs", "cronce.event.alert.other", "$KV.cronce_jobs.other",
	"$KV.cronce_ledger.other.t.theirs", "$KV.cronce_state.lock.other", "$KV.cronce_nodes.b-1-1-x",
}

const (
	othersPayload = `"a secret of the other job"`
	// noOnesSubject is stored by a stream, and no login may publish on it.
	noOnesSubject = "cronce.timer.due.default.other"
)

// headerStage is a server on which a login tries headers, and what is stored is compared.
type headerStage struct {
	t      *testing.T
	js     jetstream.JetStream // of a login that may do everything
	ask    string              // prefix of the JetStream API for the login
	hand   *nats.Conn
	denied chan error // what the server has denied
}

// attempt publishes a message with the login. stored reports whether the server took it.
func (s *headerStage) attempt(subject string, header nats.Header, data string) (stored bool) {
	s.t.Helper()
	return s.send(&nats.Msg{Subject: subject, Header: header, Data: []byte(data)})
}

func (s *headerStage) send(m *nats.Msg) (stored bool) {
	s.t.Helper()
	if rest, ok := strings.CutPrefix(m.Subject, "$JS.API."); ok {
		m.Subject = s.ask + rest
	} else if s.ask != jetstream.DefaultAPIPrefix && strings.HasPrefix(m.Subject, "$KV.") {
		m.Subject = s.ask + m.Subject
	}
	answers := make(chan *nats.Msg, 1)
	sub, err := s.hand.ChanSubscribe(s.hand.NewRespInbox(), answers)
	if err != nil {
		s.t.Fatal(err)
	}
	defer sub.Unsubscribe()
	waits := m.Reply == ""
	if waits {
		m.Reply = sub.Subject
	}
	if err := errors.Join(s.hand.PublishMsg(m), s.hand.Flush()); err != nil {
		s.t.Fatal(err)
	}
	if !waits { // the server denies before it answers the flush
		if last := s.hand.LastError(); last == nil || !strings.Contains(last.Error(), fmt.Sprintf("%q", m.Subject)) {
			return true
		}
	}
	var answer *nats.Msg
	select {
	case <-s.denied:
		return false
	case answer = <-answers:
	case <-time.After(20 * time.Second):
		s.t.Fatalf("%s with %v: neither denied nor answered", m.Subject, m.Header)
	}
	if answer.Header.Get("Status") == "503" {
		return false // the account imports no such subject
	}
	var ack struct{ Error *server.ApiError }
	return json.Unmarshal(answer.Data, &ack) != nil || ack.Error == nil
}

// stored returns how often each subject is stored, without those of the own subjects.
func (s *headerStage) stored() map[string]uint64 {
	s.t.Helper()
	all := map[string]uint64{}
	for _, name := range layout.Streams("cronce") {
		stream, err := s.js.Stream(s.t.Context(), name)
		if err != nil {
			s.t.Fatal(err)
		}
		info, err := stream.Info(s.t.Context(), jetstream.WithSubjectFilter(">"))
		if err != nil {
			s.t.Fatal(err)
		}
		for subject, n := range info.State.Subjects {
			if !slices.Contains(own, subject) {
				all[subject] = n
			}
		}
	}
	return all
}

// restore stores what is missing about the other job, and removes what the login has brought about.
func (s *headerStage) restore() {
	s.t.Helper()
	for subject := range s.stored() {
		if subject == "$KV.cronce_state.settings" || slices.Contains(others, subject) {
			continue
		}
		s.purge(subject)
	}
	is := s.stored()
	for _, subject := range others {
		if is[subject] == 0 {
			s.store(subject, nil)
		}
	}
}

func (s *headerStage) purge(subject string) {
	s.t.Helper()
	name, err := s.js.StreamNameBySubject(s.t.Context(), subject)
	if err != nil {
		s.t.Fatal(err)
	}
	if strings.HasPrefix(name, "KV_") {
		return // a bucket is not purged; what is there is overwritten
	}
	stream, err := s.js.Stream(s.t.Context(), name)
	if err == nil {
		err = stream.Purge(s.t.Context(), jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// store publishes a message about the other job. duplicate reports whether the server dropped it.
func (s *headerStage) store(subject string, header nats.Header) (duplicate bool) {
	s.t.Helper()
	m := &nats.Msg{Subject: subject, Header: nats.Header{}, Data: []byte(othersPayload)}
	for name, values := range header {
		m.Header[name] = values
	}
	if strings.Contains(subject, ".timer.set.") {
		m.Header.Set("Nats-Schedule", "@at "+time.Now().Add(time.Hour).UTC().Format(time.RFC3339Nano))
		m.Header.Set("Nats-Schedule-Target", noOnesSubject)
	}
	ack, err := s.js.PublishMsg(s.t.Context(), m)
	if err != nil {
		s.t.Fatalf("%s: %v", subject, err)
	}
	return ack.Duplicate
}

// changed reports whether anything but the own subjects is stored otherwise than before f.
func (s *headerStage) changed(f func() (stored bool)) bool {
	s.t.Helper()
	before := s.stored()
	return f() && fmt.Sprint(before) != fmt.Sprint(s.stored())
}

// neighbour returns what the stream of a subject holds about the other job.
func neighbour(subject string) string {
	prefix := func(s string) string { return strings.Join(strings.SplitN(s, ".", 3)[:2], ".") }
	for _, other := range others {
		if prefix(other) == prefix(subject) {
			return other
		}
	}
	return ""
}

// headerDeeds are the rows of the table. Each publishes on one subject, and reports whether that acted on
// something else than this subject.
var headerDeeds = map[string]func(s *headerStage, subject string) bool{
	"`Nats-Schedule`, `Nats-Schedule-Target`": func(s *headerStage, subject string) bool {
		return s.attempt(subject, scheduled(noOnesSubject), "{}") && s.fires(noOnesSubject)
	},
	"`Nats-Schedule-Source`": func(s *headerStage, subject string) bool {
		h := scheduled(noOnesSubject)
		h.Set("Nats-Schedule-Source", "cronce.timer.set.other.theirs")
		if !s.attempt(subject, h, "{}") || !s.fires(noOnesSubject) {
			return false
		}
		stream, err := s.js.Stream(s.t.Context(), "cronce_timers")
		if err != nil {
			s.t.Fatal(err)
		}
		m, err := stream.GetLastMsgForSubject(s.t.Context(), noOnesSubject)
		return err == nil && string(m.Data) == othersPayload
	},
	"`Nats-Scheduler`, `Nats-Schedule-Next`": func(s *headerStage, subject string) bool {
		return s.changed(func() bool {
			return s.attempt(subject, nats.Header{"Nats-Scheduler": {"cronce.timer.set.other.theirs"}, "Nats-Schedule-Next": {"purge"}}, "{}")
		})
	},
	"`Nats-Rollup`": func(s *headerStage, subject string) bool {
		return s.changed(func() bool { return s.attempt(subject, nats.Header{"Nats-Rollup": {"all"}}, "{}") })
	},
	"`Nats-Msg-Id`": func(s *headerStage, subject string) bool {
		id := nats.Header{"Nats-Msg-Id": {"of-the-other-job/" + subject + fmt.Sprint(time.Now().UnixNano())}}
		if strings.HasPrefix(subject, "$KV.") || neighbour(subject) == "" || strings.Contains(subject, ".timer.") {
			// Values and timers are stored without an ID, so that no other message can stand for them.
			return s.attempt(subject, id, "{}") && s.store(neighbour(subject), nil)
		}
		return s.attempt(subject, id, "{}") && s.store(neighbour(subject), id)
	},
	"`Nats-TTL`": func(s *headerStage, subject string) bool {
		return s.changed(func() bool { return s.attempt(subject, nats.Header{"Nats-TTL": {"1s"}}, "{}") })
	},
	"`Nats-Expected-*`": func(s *headerStage, subject string) bool {
		return s.changed(func() bool {
			accepted := s.attempt(subject, nats.Header{"Nats-Expected-Last-Subject-Sequence": {"0"}}, "{}")
			accepted = s.attempt(subject, nats.Header{"Nats-Expected-Stream": {"cronce_nosuch"}}, "{}") || accepted
			accepted = s.attempt(subject, nats.Header{"Nats-Expected-Last-Msg-Id": {"x"}}, "{}") || accepted
			return s.attempt(subject, nats.Header{"Nats-Expected-Last-Subject-Sequence": {"0"}, "Nats-Expected-Last-Subject-Sequence-Subject": {neighbour(subject)}}, "{}") || accepted
		})
	},
	"`Nats-Batch-*`": func(s *headerStage, subject string) bool {
		part := func(n, sequence int, commit bool) nats.Header {
			h := nats.Header{"Nats-Batch-Id": {fmt.Sprintf("b%d", n)}, "Nats-Batch-Sequence": {fmt.Sprint(sequence)}}
			if commit {
				h.Set("Nats-Batch-Commit", "1")
			}
			return h
		}
		const most = 50 // the batches that the server keeps open in one stream
		for n := range most {
			if !s.attempt(subject, part(n, 1, false), "{}") {
				return false
			}
		}
		m := &nats.Msg{Subject: neighbour(subject), Header: part(most, 1, true), Data: []byte(othersPayload)}
		_, err := s.js.PublishMsg(s.t.Context(), m)
		for n := range most {
			s.attempt(subject, part(n, 2, true), "{}")
		}
		return err != nil
	},
	"`Nats-Incr`": func(s *headerStage, subject string) bool {
		return s.changed(func() bool { return s.attempt(subject, nats.Header{"Nats-Incr": {"+1"}}, "") })
	},
	"`Nats-Trace-Dest`": func(s *headerStage, subject string) bool {
		return s.changed(func() bool {
			return s.attempt(subject, nats.Header{"Nats-Trace-Dest": {noOnesSubject}}, "{}")
		})
	},
	"the reply subject": func(s *headerStage, subject string) bool {
		before := s.stored()
		if !s.send(&nats.Msg{Subject: subject, Reply: noOnesSubject, Data: []byte("{}")}) {
			return false
		}
		// The server answers the messages on a subject in order, and a stream stores messages in order. So the
		// first answer is stored by now, or never.
		s.attempt(subject, nil, "{}")
		s.store("cronce.timer.set.other.theirs", nil)
		return fmt.Sprint(before) != fmt.Sprint(s.stored())
	},
}

// scheduled returns the headers of a timer that fires at once.
func scheduled(target string) nats.Header {
	return nats.Header{"Nats-Schedule": {"@at " + time.Now().UTC().Format(time.RFC3339Nano)}, "Nats-Schedule-Target": {target}}
}

// fires waits for a message that the server publishes.
func (s *headerStage) fires(subject string) bool {
	s.t.Helper()
	natstest.Eventually(s.t, "the message of a timer on "+subject, func() bool { return s.stored()[subject] > 0 })
	return true
}

// headerTable returns the cells of the table in docs/threat-model.md: by header and column.
func headerTable(t *testing.T, title string) map[string]map[string]string {
	t.Helper()
	page, err := os.ReadFile("../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	table, columns := map[string]map[string]string{}, []string(nil)
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == title:
			columns = cells
		case columns != nil && len(cells) != len(columns):
			return table
		case columns != nil && !strings.HasPrefix(cells[0], "---"):
			table[cells[0]] = map[string]string{}
			for i, cell := range cells[1:] {
				table[cells[0]][columns[i+1]] = cell
			}
		}
	}
	t.Fatalf("docs/threat-model.md has no table that begins with the column %q", title)
	return nil
}

// Each cell of the table of headers is tried by a raw client with the login of its column, on every subject on
// which the login may publish.
func TestHeadersActOnlyWhereTheTableSays(t *testing.T) {
	t.Parallel()
	running := natstest.Run(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "admin", Password: "secret"}}
		for _, role := range headerRoles {
			grants, err := role.Grants()
			if err != nil {
				t.Fatal(err)
			}
			p := &server.Permissions{Publish: &server.SubjectPermission{}, Subscribe: &server.SubjectPermission{}}
			for _, g := range grants {
				p.Publish.Allow, p.Subscribe.Allow = append(p.Publish.Allow, g.Publish...), append(p.Subscribe.Allow, g.Subscribe...)
			}
			o.Users = append(o.Users, &server.User{Username: role.column, Password: "secret", Permissions: p})
		}
	})
	js := natstest.JetStream(t, running.Conn(nats.UserInfo("admin", "secret")))
	if _, err := space.Setup(t.Context(), js, kv.Options{}); err != nil {
		t.Fatal(err)
	}
	checkHeaders(t, js, jetstream.DefaultAPIPrefix, "header of a message", func(column string, opts ...nats.Option) *nats.Conn {
		return running.Conn(append(opts, nats.UserInfo(column, "secret"))...)
	})
}

// checkHeaders compares a table with what each login can do. connect makes a connection for a column.
func checkHeaders(t *testing.T, js jetstream.JetStream, ask, title string, connect func(column string, opts ...nats.Option) *nats.Conn) {
	table := headerTable(t, title)
	for header := range table {
		if headerDeeds[header] == nil {
			t.Errorf("the table has the row %q, which no test tries", header)
		}
	}
	for _, role := range headerRoles {
		denied := make(chan error, 100)
		s := &headerStage{t, js, ask, connect(role.column, nats.CustomInboxPrefix("_INBOX.cronce"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })), denied}
		for header, deed := range headerDeeds {
			var acts []string
			subjects := own
			if header == "the reply subject" {
				subjects = append(slices.Clone(own), "$JS.API.STREAM.INFO.cronce_slots")
			}
			for _, subject := range subjects {
				if s.restore(); deed(s, subject) {
					acts = append(acts, subject)
				}
			}
			got := "no"
			if len(acts) > 0 {
				got = "yes"
			}
			if want := table[header][role.column]; got != want {
				t.Errorf("%s of a %s acts elsewhere: %s (on %v), and the table says %q", header, role.column, got, acts, want)
			}
		}
	}
}
