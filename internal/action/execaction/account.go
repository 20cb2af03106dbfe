package execaction

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/action/guard"
	"github.com/cronce-io/cronce/internal/jobfile/spec"
)

// account is the user that a program runs as.
type account struct {
	// as is nil if the program runs as the worker does.
	as *guard.Credential

	// name and home are empty if the action names no user.
	name, home string
}

// Check returns an error if this process cannot run the program as the action's user and
// group.
func Check(e spec.Exec) error {
	_, err := lookUp(e)
	return err
}

// lookUp asks the system for the action's user and group. It does so for each run, because
// both may change.
func lookUp(e spec.Exec) (a account, err error) {
	if e.User == "" && e.Group == "" {
		return a, nil
	}
	uid := os.Geteuid()
	if uid < 0 {
		return a, fmt.Errorf("user and group of a command: %w on this system", errors.ErrUnsupported)
	}
	as := guard.Credential{UID: uint32(uid), GID: uint32(os.Getegid()), KeepGroups: true}
	if e.User != "" {
		if a, as, err = lookUpUser(e.User, e.Group != ""); err != nil {
			return a, err
		}
	}
	if e.Group != "" {
		if as.GID, err = lookUpGroup(e.Group); err != nil {
			return a, err
		}
	}
	if int(as.UID) == uid && int(as.GID) == os.Getegid() {
		return a, nil
	}
	if uid != 0 {
		return a, fmt.Errorf("cannot run commands as %s: this process is user %d, and only root can", described(e), uid)
	}
	a.as = &as
	return a, nil
}

func lookUpUser(name string, hasGroup bool) (a account, as guard.Credential, err error) {
	found, err := user.Lookup(name)
	var unknown user.UnknownUserError
	if id, numeric := parseID(name); errors.As(err, &unknown) && numeric {
		found, err = user.LookupId(name)
		var unknownID user.UnknownUserIdError
		if errors.As(err, &unknownID) {
			if !hasGroup {
				return a, as, fmt.Errorf("user %s is not known to this machine, so it has no group: set group too", name)
			}
			return account{name: name, home: "/"}, guard.Credential{UID: id}, nil
		}
	}
	if errors.As(err, &unknown) {
		return a, as, fmt.Errorf("no user %q on this machine", name)
	}
	if err != nil {
		return a, as, fmt.Errorf("look up user %q: %w", name, err)
	}
	uid, okUser := parseID(found.Uid)
	gid, okGroup := parseID(found.Gid)
	groups, err := found.GroupIds()
	if err != nil || !okUser || !okGroup {
		return a, as, fmt.Errorf("look up the groups of user %q: %w", name, errors.Join(err, errors.ErrUnsupported))
	}
	as = guard.Credential{UID: uid, GID: gid}
	for _, text := range groups {
		if id, ok := parseID(text); ok {
			as.Groups = append(as.Groups, id)
		}
	}
	return account{name: found.Username, home: found.HomeDir}, as, nil
}

func lookUpGroup(name string) (uint32, error) {
	found, err := user.LookupGroup(name)
	if _, unknown := errors.AsType[user.UnknownGroupError](err); unknown {
		if id, numeric := parseID(name); numeric {
			return id, nil
		}
		return 0, fmt.Errorf("no group %q on this machine", name)
	}
	if err != nil {
		return 0, fmt.Errorf("look up group %q: %w", name, err)
	}
	id, ok := parseID(found.Gid)
	if !ok {
		return 0, fmt.Errorf("group %q has the number %q: %w", name, found.Gid, errors.ErrUnsupported)
	}
	return id, nil
}

// homeOfWorker returns the home directory of the worker's user. HOME may be unset in a service.
func homeOfWorker() (string, error) {
	if home, err := os.UserHomeDir(); err == nil {
		return home, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	return u.HomeDir, nil
}

func parseID(text string) (uint32, bool) {
	// The highest number means "no change" to the system.
	id, err := strconv.ParseUint(text, 10, 32)
	return uint32(id), err == nil && uint32(id) != 1<<32-1
}

// described names the user and group of the action.
func described(e spec.Exec) string {
	switch {
	case e.Group == "":
		return "user " + e.User
	case e.User == "":
		return "group " + e.Group
	}
	return "user " + e.User + " and group " + e.Group
}

// folder returns the working directory of the program as an absolute path, or "" for the
// worker's own.
func (a account) folder(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	if rest, inHome := strings.CutPrefix(dir, "~"); inHome {
		home := a.home
		if home == "" {
			var err error
			if home, err = homeOfWorker(); err != nil {
				return "", fmt.Errorf("dir %s: %w", dir, err)
			}
		}
		dir = filepath.Join(home, rest)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("dir %s: %w", dir, err)
	}
	if info, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("dir: %w", err)
	} else if !info.IsDir() {
		return "", fmt.Errorf("dir %s: it is not a folder", path)
	}
	return path, nil
}
