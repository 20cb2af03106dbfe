package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// enterMachine runs a script ($1) as root of a machine like this one: the same files, of which every
// change is kept apart, in $0/up; a network of its own, so that the default ports are free; and
// no systemd that runs. The files in $0/in are at /in.
const enterMachine = `set -eu
mount -t tmpfs none "$0/over"
cd "$0/over" && mkdir up work root
mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root
mkdir root/in && mount --bind "$0/in" root/in
mount -t proc proc root/proc && mount --rbind /dev root/dev
mount -t tmpfs none root/run && mount -t tmpfs none root/tmp
ip link set lo up
PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot root /bin/bash -c "$1"
rmdir root/in 2>/dev/null || true
cd up && find . ! -type d | sort
`

// lifeOfPackage is what an operator does, in order. It ends with a message at the first thing that
// is not as docs/install.md says.
const lifeOfPackage = `set -eu
fail() { echo "$*"; exit 1; }

# Each unit is started as systemd would: its user, its folder, its environment, its command, and
# again if it fails, as the dashboard does while the server is not there yet.
pids=
start() {
  for unit in cronce-server cronce cronce-ui; do
    file=/usr/lib/systemd/system/$unit.service
    user=$(sed -n 's/^User=//p' $file) state=$(sed -n 's/^StateDirectory=//p' $file)
    [ -z "$state" ] || install -d -m 0700 -o "$user" -g "$user" "/var/lib/$state"
    command=$(sed -n 's/^ExecStart=//p' $file)
    (
      set -a; . "$(sed -n 's/^EnvironmentFile=-//p' $file)"; cd /; set +e
      trap 'kill $main' TERM
      status=1
      while [ $status != 0 ]; do
        eval exec setpriv --reuid "$user" --regid "$user" --init-groups $command & main=$!
        wait $main; status=$?
        [ $status -lt 128 ] || { wait $main; status=$?; } # the signal ended only the wait
      done
    ) >>/tmp/log 2>&1 &
    pids="$pids $!"
  done
}
stop() {
  kill $pids
  for pid in $pids; do wait "$pid" || fail "a unit ends with $?"; done
  pids=
}
again() { for _ in $(seq 600); do "$@" >/tmp/last 2>&1 && return; sleep 0.1; done; cat /tmp/last /tmp/log; fail "never: $*"; }
page() { # PATH TEXT: whether the dashboard answers with a page that has the text
  exec 3<>/dev/tcp/127.0.0.1/8080 || return
  printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$1" >&3
  grep -q "$2" <&3
}
dashboard() { page /jobs/hello '</html>' && page '/api/v1/slots?job=hello' '"id":"hello:@one"'; }

# Install, and look at what is there. Nothing runs, and nothing is enabled.
dpkg -i /in/old.deb
[ "$(stat -c '%a %U:%G' /etc/cronce)" = "750 root:cronce" ] || fail "/etc/cronce is $(stat -c '%a %U:%G' /etc/cronce)"
[ -z "$(find /etc/systemd/system -name 'cronce*')" ] || fail "a unit is enabled"

# Start the units, run a job, look at the dashboard.
systemctl enable cronce-server cronce cronce-ui
printf 'version: 1\njobs:\n  - {name: hello, schedule: none, action: {exec: [/bin/echo, hello]}}\n' >/etc/cronce/jobs.yaml
echo '# mine' >>/etc/cronce/cronce.env
start
again cronce job trigger hello --key one --wait
again dashboard

# Upgrade: what the operator wrote stays, and so does what the fleet recorded.
stop
dpkg -i /in/new.deb
[ "$(dpkg-query -W -f '${Version}' cronce)" = 0.0.1 ] || fail "the version is $(dpkg-query -W -f '${Version}' cronce)"
grep -q '^# mine$' /etc/cronce/cronce.env || fail "the upgrade has replaced cronce.env"
grep -q hello /etc/cronce/jobs.yaml || fail "the upgrade has removed jobs.yaml"
[ -n "$(find /etc/systemd/system -name cronce.service)" ] || fail "the upgrade has disabled a unit"
start
again dashboard
again cronce job trigger hello --key two --wait
stop

# Remove: configuration, data and their owner stay; the units are not enabled any more.
dpkg -r cronce
[ ! -e /usr/bin/cronce ] || fail "the program is still there"
[ -z "$(find /etc/systemd/system -name 'cronce*')" ] || fail "a removed unit is enabled: $(find /etc/systemd/system -name 'cronce*')"
for path in /etc/cronce/jobs.yaml /etc/cronce/cronce.env /var/lib/cronce-server/jetstream; do [ -e "$path" ] || fail "the removal has lost $path"; done
getent passwd cronce >/dev/null || fail "the owner of /var/lib/cronce is gone"

# Install again: nothing was lost.
dpkg -i /in/new.deb
start
again dashboard
stop

# Purge: nothing is left.
dpkg -P cronce
! getent passwd cronce || fail "the user is left"
! getent group cronce || fail "the group is left"
for path in /etc/cronce /var/lib/cronce /var/lib/cronce-server /usr/share/doc/cronce; do [ ! -e "$path" ] || fail "the purge has left $path"; done
`

// checkLifeOfPackage installs, upgrades, removes and purges the package for Debian.
func checkLifeOfPackage(t *testing.T, c *checkout) {
	for _, program := range []string{"dpkg", "ip", "setpriv", "systemctl"} {
		needCommand(t, program)
	}
	unshare := []string{"--mount", "--net", "--pid", "--fork", "--kill-child"}
	if err := exec.Command("unshare", append(unshare, "true")...).Run(); err != nil {
		lacking(t, "unshare", err.Error())
	}
	dir := shortDir(t)
	for _, name := range []string{"over", "in"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{"cronce.deb": "old.deb", "upgrade.deb": "new.deb"} {
		if err := os.WriteFile(filepath.Join(dir, "in", to), []byte(readFile(t, filepath.Join(c.dir, "dist", from))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("unshare", append(unshare, "/bin/sh", "-c", enterMachine, dir, lifeOfPackage)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "DEBIAN_FRONTEND=noninteractive"}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &said)
	}
	_, left, found := strings.Cut(string(out), "\n./")
	if !found {
		t.Fatalf("no file was changed:\n%s", out)
	}
	// Purging keeps what dpkg, the shadow tools and caches write about themselves.
	theirs := []string{"var/lib/dpkg/", "var/log/", "var/cache/", "etc/passwd", "etc/group", "etc/shadow", "etc/gshadow", "etc/subuid", "etc/subgid", "etc/.pwd.lock"}
	for _, path := range strings.Split(strings.TrimSpace(left), "\n") {
		if path = strings.TrimPrefix(path, "./"); !slices.ContainsFunc(theirs, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			t.Errorf("the purge has left %s", path)
		}
	}
}
