package api

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/layout"
)

// login is the server's description of the connected user.
type login struct {
	Data struct {
		Permissions *struct {
			Publish   *rule `json:"publish"`
			Subscribe *rule `json:"subscribe"`
		} `json:"permissions"`
	} `json:"data"`
}

// rule is a list of subjects. No allowed ones: all.
type rule struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// mayOperate reports whether this node's login has the rights of an operator. What
// is not answered, or not permitted to ask, is no.
func (s *server) mayOperate() bool {
	const wait = time.Second
	reply, err := s.conn.Request("$SYS.REQ.USER.INFO", nil, wait)
	if err != nil {
		return false
	}
	var l login
	if err := json.Unmarshal(reply.Data, &l); err != nil {
		return false
	}
	p := l.Data.Permissions
	if p == nil {
		return true
	}
	grants, err := layout.Access{Namespace: s.store.Namespace(), Roles: []layout.Role{layout.RoleOperator}, Domain: s.store.Domain()}.Grants()
	if err != nil {
		return false
	}
	for _, g := range grants {
		publish := func(subject string) bool { return !p.Publish.permits(subject) }
		subscribe := func(subject string) bool {
			return !strings.HasPrefix(subject, "_INBOX.") && !p.Subscribe.permits(subject)
		}
		if slices.ContainsFunc(g.Publish, publish) || slices.ContainsFunc(g.Subscribe, subscribe) {
			return false
		}
	}
	return true
}

func (r *rule) permits(subject string) bool {
	if r == nil {
		return true
	}
	for _, deny := range r.Deny {
		if covers(deny, subject) || covers(subject, deny) {
			return false
		}
	}
	return len(r.Allow) == 0 || slices.ContainsFunc(r.Allow, func(allow string) bool { return covers(allow, subject) })
}

// covers reports whether every subject of the second pattern is one of the first.
func covers(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return i < len(s)
		case i >= len(s), token == "*" && s[i] == ">", token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}
