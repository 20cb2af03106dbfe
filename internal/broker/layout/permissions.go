package layout

import (
	"encoding/json"
	"slices"
	"strings"
)

// PermissionsSubject is the subject of a request that a server answers with the permissions of
// the login that sent it.
const PermissionsSubject = "$SYS.REQ.USER.INFO"

// Permissions are the permissions of a login, as the server reports them. The zero value permits
// everything.
type Permissions struct {
	Publish   *rule `json:"publish"`
	Subscribe *rule `json:"subscribe"`
}

// rule allows the subjects in Allow, except those in Deny. An empty Allow allows all.
type rule struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// ParsePermissions reads the answer to PermissionsSubject.
func ParsePermissions(answer []byte) (Permissions, error) {
	var read struct {
		Data struct {
			Permissions Permissions `json:"permissions"`
		} `json:"data"`
	}
	err := json.Unmarshal(answer, &read)
	return read.Data.Permissions, err
}

// MayPublish reports whether the login may publish on every subject of the pattern.
func (p Permissions) MayPublish(pattern string) bool { return p.Publish.permits(pattern) }

// MaySubscribe reports whether the login may subscribe to the pattern.
func (p Permissions) MaySubscribe(pattern string) bool { return p.Subscribe.permits(pattern) }

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

// covers reports whether pattern matches every subject that the pattern narrow matches.
func covers(pattern, narrow string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(narrow, ".")
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
