//go:build builds

package integration

import (
	"path/filepath"
	"testing"
)

// lifeOfPackage does what an operator does, in order. It fails at the first thing that is not as docs/install.md
// says. Its functions logs, start, use, upgrade, remove and purge differ with and without systemd.
const lifeOfPackage = `
fail() { echo "FAILED: $*"; logs; exit 1; }
again() { for _ in $(seq 1200); do "$@" >/tmp/last 2>&1 && return; sleep 0.1; done; cat /tmp/last; fail "never: $*"; }
page() { # PATH TEXT: whether the dashboard answers with a page that has the text
  exec 3<>/dev/tcp/127.0.0.1/8080 || return
  printf 'GET %s HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n' "$1" >&3
  grep -q "$2" <&3
}
dashboard() { page /jobs/hello '</html>' && page '/api/v1/slots?job=hello' '"id":"hello:@one"'; }
enabled() { find /etc/systemd/system -name 'cronce*'; }
# The files that have changed, without what dpkg, the shadow tools, systemd and caches write about
# themselves.
files() {
  cd /in/up
  find . ! -type d | grep -Ev '^\./(var/lib/dpkg/|var/lib/systemd/|var/log/|var/cache/|etc/(passwd|group|shadow|gshadow|subuid|subgid)|etc/\.)' | sort
  cd /
}

# Install, and look at what is there. Nothing runs, and nothing is enabled.
files >/tmp/before
dpkg -i /in/old.deb
[ "$(stat -c '%a %U:%G' /etc/cronce)" = "750 root:cronce" ] || fail "/etc/cronce is $(stat -c '%a %U:%G' /etc/cronce)"
[ -z "$(enabled)" ] || fail "a unit is enabled"
files | grep -qx ./usr/bin/cronce || fail "/in/up does not show what has changed"

# Start the units, run a job, look at the dashboard.
systemctl enable cronce-server cronce cronce-ui
printf 'version: 1\njobs:\n  - {name: hello, schedule: none, action: {exec: [/bin/echo, hello]}}\n' >/etc/cronce/jobs.yaml
echo '# mine' >>/etc/cronce/cronce.env
start
again cronce job trigger hello --key one --wait
again dashboard
use

# Upgrade: what the operator wrote stays, and so does what the fleet recorded.
upgrade
[ "$(dpkg-query -W -f '${Version}' cronce)" = 0.0.1 ] || fail "the version is $(dpkg-query -W -f '${Version}' cronce)"
grep -q '^# mine$' /etc/cronce/cronce.env || fail "the upgrade has replaced cronce.env"
grep -q hello /etc/cronce/jobs.yaml || fail "the upgrade has removed jobs.yaml"
enabled | grep -q '/cronce.service$' || fail "the upgrade has disabled a unit"
again dashboard
again cronce job trigger hello --key two --wait

# Remove: configuration, data and their owner stay; nothing runs, and the units are not enabled any more.
remove
[ ! -e /usr/bin/cronce ] || fail "the program is still there"
[ -z "$(enabled)" ] || fail "a removed unit is enabled: $(enabled)"
for path in /etc/cronce/jobs.yaml /etc/cronce/cronce.env /var/lib/cronce-server/jetstream; do [ -e "$path" ] || fail "the removal has lost $path"; done
getent passwd cronce >/dev/null || fail "the owner of /var/lib/cronce is gone"

# Install again: nothing was lost.
dpkg -i /in/new.deb
start
again dashboard
again cronce slot show hello:@two

# Purge: nothing is left.
purge
! getent passwd cronce || fail "the user is left"
! getent group cronce || fail "the group is left"
for path in /etc/cronce /var/lib/cronce /var/lib/cronce-server /usr/share/doc/cronce; do [ ! -e "$path" ] || fail "the purge has left $path"; done
files >/tmp/after
left=$(comm -13 /tmp/before /tmp/after)
[ -z "$left" ] || fail "the purge has left $left"
`

// withoutSystemd starts each unit as systemd would: its user, its folder, its environment, its
// command, and again if it fails.
const withoutSystemd = `set -eu
logs() { cat /tmp/log; }
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
use() { :; }
upgrade() { stop; dpkg -i /in/new.deb; start; }
remove() { stop; dpkg -r cronce; }
purge() { stop; dpkg -P cronce; }
`

// withSystemd leaves the units to systemd and to the scripts of the package. A slot runs during the upgrade. It
// ends only when systemd stops the node.
const withSystemd = `set -eu
units="cronce-server cronce cronce-ui"
logs() { systemctl status --no-pager --lines=0 $units; journalctl --no-pager --output=cat -u 'cronce*'; }
start() { systemctl start $units; active; }
active() { for unit in $units; do [ "$(systemctl is-active $unit)" = active ] || fail "$unit is $(systemctl is-active $unit)"; done; }
main() { systemctl show --property=MainPID --value "$1"; }
other() { [ "$(main "$1")" != "$2" ] && [ "$(main "$1")" != 0 ] && [ "$(systemctl is-active "$1")" = active ]; }
renewed() { again other cronce-server $server; again other cronce $node; again other cronce-ui $ui; }
gone() { [ -z "$(systemctl list-units --all --plain --no-legend 'cronce*')" ] || fail "units are left: $(systemctl list-units --all 'cronce*')"; }
said() { cronce slot show "$1" -o json | grep -q "$2"; }

use() {
  # Commands run as the user of the unit, in its sandbox. A changed file is read at a reload.
  cat >/etc/cronce/jobs.yaml <<end
version: 1
jobs:
  - {name: hello, schedule: none, action: {exec: [/bin/echo, hello]}}
  - {name: sandbox, schedule: none, action: {exec: [/bin/sh, -c, 'id -un; ! touch /etc/mine 2>/dev/null && touch /var/lib/cronce/mine /tmp/mine']}}
  - {name: long, schedule: none, retry: {attempts: 2}, action: {exec: [/bin/sh, -c, 'until [ -e /var/lib/cronce/go ]; do sleep 0.1; done']}}
end
  systemctl reload cronce
  again cronce job trigger sandbox --key one --wait
  said sandbox:@one '"output":"cronce' || fail "the job is not run by cronce: $(cronce slot show sandbox:@one)"
  [ -e /var/lib/cronce/mine ] && [ ! -e /tmp/mine ] || fail "the job is not in the sandbox"
  # A wrong file changes nothing, and what is killed comes again.
  cp /etc/cronce/jobs.yaml /tmp/jobs.yaml; echo '  - nonsense' >>/etc/cronce/jobs.yaml
  systemctl reload cronce
  again eval 'journalctl --no-pager -u cronce | grep -q "reload failed"'
  active
  cp /tmp/jobs.yaml /etc/cronce/jobs.yaml
  server=$(main cronce-server) node=$(main cronce) ui=$(main cronce-ui)
  systemctl kill --signal=KILL --kill-who=main $units
  renewed
  # The dashboard starts, waits and says so while there is no server.
  systemctl stop cronce cronce-server
  systemctl restart --no-block cronce-ui
  again eval 'systemctl status cronce-ui | grep -q "waiting for the NATS server"'
  start
  again dashboard
}
upgrade() {
  server=$(main cronce-server) node=$(main cronce) ui=$(main cronce-ui)
  again cronce job trigger long --key one
  again said long:@one '"state":"running"'
  (until [ "$(systemctl is-active cronce)" = deactivating ]; do sleep 0.1; done; touch /var/lib/cronce/go) &
  dpkg -i /in/new.deb
  renewed
  again said long:@one '"state":"succeeded"'
  said long:@one '"state":"succeeded","attempt":1,' || fail "the upgrade has taken the outcome of a slot: $(cronce slot explain long:@one)"
}
remove() { dpkg -r cronce; gone; }
purge() { dpkg -P cronce; gone; }
`

// checkLifeOfPackage installs, uses, upgrades, removes and purges the package for Debian, on a
// copy of this machine.
func checkLifeOfPackage(t *testing.T, c *checkout) {
	files := map[string]string{"old.deb": filepath.Join(c.dir, "dist/cronce.deb"), "new.deb": filepath.Join(c.dir, "dist/upgrade.deb")}
	t.Run("on a machine without systemd", func(t *testing.T) {
		t.Parallel()
		needMachine(t, false)
		runMachine(t, enterMachine, withoutSystemd+lifeOfPackage, files)
	})
	t.Run("on a machine with systemd", func(t *testing.T) {
		t.Parallel()
		needMachine(t, true)
		runMachine(t, bootMachine, withSystemd+lifeOfPackage, files)
	})
}
