package layout_test

import (
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/broker/layout"
)

func TestCallersOfOneJobMayHaveAccountsOfTheirOwn(t *testing.T) {
	t.Parallel()
	login := func(name string, roles ...layout.Role) layout.Login {
		return layout.Login{Name: name, Access: layout.Access{Roles: roles, Jobs: []string{"report"}}}
	}
	for name, other := range map[string]layout.Login{
		"a caller":               login("b", layout.RoleCaller),
		"a caller that views":    login("b", layout.RoleCaller, layout.RoleViewer),
		"an operator":            {Name: "b", Access: layout.Access{Roles: []layout.Role{layout.RoleOperator}}},
		"a viewer of all events": {Name: "b", Access: layout.Access{Roles: []layout.Role{layout.RoleViewer}}},
	} {
		accounts, err := layout.Accounts("cronce", "fleet", []layout.Login{login("a", layout.RoleCaller), other})
		if err != nil {
			t.Errorf("beside %s: %v", name, err)
			continue
		}
		receives := false
		for _, a := range accounts {
			for _, i := range a.Imports {
				receives = receives || a.Name == "B" && i.Account == "A" && strings.Contains(i.Subject, ".event.ordered.")
			}
		}
		if want := other.Access.Roles[0] != layout.RoleCaller; receives != want {
			t.Errorf("%s receives the caller's orders: %v, want %v", name, receives, want)
		}
	}
}
