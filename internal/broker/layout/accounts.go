package layout

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cronce-io/cronce/job"
)

// Account is one NATS account of a namespace that isolates its logins. One account holds
// the streams. Each login has its own account, which imports only the subjects that the login
// may use. A login can name any subject of its own account as a reply subject, so the server would
// publish there on its behalf. Because the streams are in another account, such a reply
// cannot reach them.
type Account struct {
	Name string

	// Streams reports whether JetStream is enabled in the account.
	Streams bool

	// Login is the account's user. The zero value: the account has none.
	Login Login

	Exports []Export
	Imports []Import
}

// Login is a user and its permissions.
type Login struct {
	Name   string
	Access Access
	Grants []Grant
}

// Export is a subject that other accounts may import.
type Export struct {
	Subject string

	// Stream is true if the account publishes messages to the importers, and false if the
	// importers send requests to it.
	Stream bool

	// Many is true if one request may have several replies.
	Many bool

	// To are the accounts that may import the subject.
	To []string
}

// Import is a subject that an account imports from another account.
type Import struct {
	Account, Subject string
	Stream           bool

	// As is the subject in the importing account. Empty: the same subject.
	As string
}

// DefaultDomain is the JetStream domain under which the logins of Accounts reach the
// streams, which are in another account. It must differ from the server's own domain.
const DefaultDomain = "fleet"

// Accounts returns the accounts of a namespace: first the account of the streams, then
// one for each login. Errors wrap job.ErrInvalid.
func Accounts(namespace, domain string, logins []Login) ([]Account, error) {
	all := accounts{domain: domain, exports: map[string]*Export{}}
	all.streams.Name, all.streams.Streams = accountName(namespace), true
	for _, l := range logins {
		name := accountName(l.Name)
		if name == all.streams.Name || slices.ContainsFunc(all.logins, func(a *Account) bool { return a.Name == name }) {
			return nil, fmt.Errorf("%w login %q: another account has the name %s", job.ErrInvalid, l.Name, name)
		}
		l.Access.Namespace, l.Access.Domain = namespace, domain
		grants, err := l.Access.Grants()
		if err != nil {
			return nil, err
		}
		if slices.Contains(subjects(grants, func(g Grant) []string { return g.Publish }), replies(namespace)[0]) {
			// For a request from another account, the server replaces the reply subject with
			// one of its own.
			grants = append(grants, Grant{What: "answer the requests of other accounts", Publish: []string{"_R_.>"}})
		}
		l.Grants = grants
		all.logins = append(all.logins, &Account{Name: name, Login: l})
	}
	for _, a := range all.logins {
		all.connectToStreams(a)
		all.connectToNodes(a)
		all.connectToEvents(a)
	}
	if err := all.checkCycles(); err != nil {
		return nil, err
	}
	for _, subject := range slices.Sorted(maps.Keys(all.exports)) {
		all.streams.Exports = append(all.streams.Exports, *all.exports[subject])
	}
	result := []Account{all.streams}
	for _, a := range all.logins {
		result = append(result, *a)
	}
	return result, nil
}

func accountName(login string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, strings.ToUpper(login))
}

// accounts is the state of Accounts while it builds them.
type accounts struct {
	domain  string
	streams Account
	exports map[string]*Export // of the stream account, by subject
	logins  []*Account
}

// connectToStreams lets a login send requests to the JetStream API and publish to the streams.
func (all *accounts) connectToStreams(a *Account) {
	ns := a.Login.Access.Namespace
	for _, as := range subjects(a.Login.Grants, func(g Grant) []string { return g.Publish }) {
		if !belongsToStreams(ns, as) {
			continue
		}
		subject := all.plain(as)
		e := all.exports[subject]
		if e == nil {
			e = &Export{Subject: subject, Many: strings.Contains(subject, ".MSG.NEXT.") || strings.Contains(subject, ".DIRECT.GET.")}
			all.exports[subject] = e
		}
		e.To = append(e.To, a.Name)
		i := Import{Account: all.streams.Name, Subject: subject}
		if as != subject {
			i.As = as
		}
		a.Imports = append(a.Imports, i)
	}
}

// connectToEvents lets other logins receive the events that this login publishes. The stream
// account receives an event as a request, and the server does not forward requests to other
// subscribers.
func (all *accounts) connectToEvents(a *Account) {
	for _, published := range a.events() {
		e := Export{Subject: published, Stream: true}
		for _, other := range all.logins {
			if other == a {
				continue
			}
			for _, subject := range withoutCycle(other.receives([]string{published}), a.receives(other.events())) {
				e.To = append(e.To, other.Name)
				other.Imports = append(other.Imports, Import{Account: a.Name, Subject: subject, Stream: true})
			}
		}
		if len(e.To) > 0 {
			e.To = slices.Compact(e.To)
			a.Exports = append(a.Exports, e)
		}
	}
}

// events returns the subjects of the events that the login publishes. It leaves out each subject that
// another one covers, because the server refuses a second import of one subject.
func (a *Account) events() []string {
	published := subjects(a.Login.Grants, func(g Grant) []string { return g.Publish })
	return slices.DeleteFunc(slices.Clone(published), func(s string) bool {
		covered := slices.ContainsFunc(published, func(p string) bool { return p != s && covers(p, s) })
		return covered || !strings.HasPrefix(s, a.Login.Access.Namespace+".event.")
	})
}

// receives returns the subjects of the published events that the login may receive.
func (a *Account) receives(published []string) (received []string) {
	for _, p := range published {
		for _, s := range subjects(a.Login.Grants, func(g Grant) []string { return g.Subscribe }) {
			switch {
			case covers(s, p):
				received = append(received, p)
			case covers(p, s): // only the events of some jobs
				received = append(received, s)
			}
		}
	}
	return received
}

// withoutCycle returns the event subjects that one account imports from another. wanted are those that
// it wants, and back are those that the other account wants from it. The server refuses two accounts
// that import one subject from each other. So withoutCycle resolves each overlap with back:
//   - A wanted subject of all kinds of events is replaced by one for each outcome. Those that overlap
//     are left out.
//   - A wanted subject of one kind is kept if the other account wants all kinds. The call for the
//     other account then leaves this kind out.
//   - If both accounts want the same kind, as two callers of one job do, neither imports it.
func withoutCycle(wanted, back []string) (imports []string) {
	overlaps := func(s string) bool {
		return slices.ContainsFunc(back, func(b string) bool { return covers(b, s) || covers(s, b) })
	}
	for _, s := range wanted {
		before, after, anyKind := strings.Cut(s, ".event.*.")
		if !anyKind || !overlaps(s) {
			mutual := slices.ContainsFunc(back, func(b string) bool {
				return !strings.Contains(b, ".event.*.") && (covers(b, s) || covers(s, b))
			})
			if !mutual {
				imports = append(imports, s)
			}
			continue
		}
		for _, outcome := range []job.State{job.Succeeded, job.Failed, job.Skipped, job.Missed, job.Expired, job.Cancelled} {
			if one := before + ".event." + string(outcome) + "." + after; !overlaps(one) {
				imports = append(imports, one)
			}
		}
	}
	return imports
}

// connectToNodes lets other logins send requests to the nodes of this login.
func (all *accounts) connectToNodes(a *Account) {
	ns := a.Login.Access.Namespace
	for _, subject := range subjects(a.Login.Grants, func(g Grant) []string { return g.Subscribe }) {
		if !strings.HasPrefix(subject, ns+".node.") && !strings.HasPrefix(subject, ns+".api.") && !strings.HasPrefix(subject, "$SRV.") {
			continue
		}
		e := Export{Subject: subject, Many: strings.HasPrefix(subject, "$SRV.")}
		for _, asker := range all.logins {
			if asker == a {
				continue
			}
			for _, asked := range subjects(asker.Login.Grants, func(g Grant) []string { return g.Publish }) {
				// A login that serves orders exports api.*.*, which also matches requests that only
				// other nodes answer. They must go to the accounts that export their own subject.
				elsewhere := slices.ContainsFunc([]string{APISubject(ns, "node.*"), LaterSubject(ns, "*")},
					func(own string) bool { return covers(own, asked) && subject != own })
				if covers(subject, asked) && !elsewhere {
					e.To = append(e.To, asker.Name)
					asker.Imports = append(asker.Imports, Import{Account: a.Name, Subject: asked})
				}
			}
		}
		if len(e.To) > 0 {
			e.To = slices.Compact(e.To)
			a.Exports = append(a.Exports, e)
		}
	}
}

// checkCycles returns an error if two logins import overlapping subjects from each other. Two
// workers would, because each asks the other to cancel slots. The server refuses such imports.
func (all *accounts) checkCycles() error {
	for i, a := range all.logins {
		for _, b := range all.logins[:i] {
			for _, x := range a.Imports {
				if x.Account == b.Name && slices.ContainsFunc(b.Imports, func(y Import) bool {
					return y.Account == a.Name && (covers(x.Subject, y.Subject) || covers(y.Subject, x.Subject))
				}) {
					return fmt.Errorf("%w logins %q and %q: each answers requests of the other on %s, which NATS does not allow between two accounts: use one login for both",
						job.ErrInvalid, b.Login.Name, a.Login.Name, x.Subject)
				}
			}
		}
	}
	return nil
}

// plain returns the subject as the stream account sees it.
func (all *accounts) plain(subject string) string {
	rest, prefixed := strings.CutPrefix(subject, "$JS."+all.domain+".API.")
	switch {
	case !prefixed:
		return subject
	case strings.HasPrefix(rest, "$KV."):
		return rest
	}
	return jetstream.DefaultAPIPrefix + rest
}

// belongsToStreams reports whether a subject is one of the JetStream API or of a stream.
func belongsToStreams(namespace, subject string) bool {
	return slices.ContainsFunc([]string{"$JS.", "$KV.", namespace + ".slot.", namespace + ".wait.", namespace + ".timer.", namespace + ".event."},
		func(prefix string) bool { return strings.HasPrefix(subject, prefix) })
}

func subjects(grants []Grant, of func(Grant) []string) []string {
	var all []string
	for _, g := range grants {
		for _, s := range of(g) {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}
