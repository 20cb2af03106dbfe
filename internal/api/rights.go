package api

import (
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/broker/layout"
)

// mayOperate reports whether this node's login has the permissions of an operator. It returns
// false if the server does not answer, or does not permit the question.
func (s *server) mayOperate() bool {
	const wait = time.Second
	reply, err := s.conn.Request(layout.PermissionsSubject, nil, wait)
	if err != nil {
		return false
	}
	login, err := layout.ParsePermissions(reply.Data)
	if err != nil {
		return false
	}
	grants, err := layout.Access{Namespace: s.store.Namespace, Roles: []layout.Role{layout.RoleOperator}, Domain: s.store.Domain()}.Grants()
	if err != nil {
		return false
	}
	for _, g := range grants {
		mayNotPublish := func(subject string) bool { return !login.MayPublish(subject) }
		mayNotSubscribe := func(subject string) bool {
			return !strings.HasPrefix(subject, "_INBOX.") && !login.MaySubscribe(subject)
		}
		if slices.ContainsFunc(g.Publish, mayNotPublish) || slices.ContainsFunc(g.Subscribe, mayNotSubscribe) {
			return false
		}
	}
	return true
}
