//go:build builds

package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

// copyMachine makes the root of a machine like this one at $0/over/root: the same files, of which
// every change is kept apart, and can be seen in /in/up. The files in $0/in are at /in.
const copyMachine = `set -eu
mount -t tmpfs none "$0/over"
cd "$0/over" && mkdir up work root
mount -t overlay overlay -o lowerdir=/,upperdir=up,workdir=work root
mkdir root/in && mount --bind "$0/in" root/in && mount --bind up root/in/up
mount -t proc proc root/proc
mount -t tmpfs none root/run && mount -t tmpfs none root/tmp
ip link set lo up
rm -f root/var/lib/man-db/auto-update # an index of manuals takes long
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
`

// enterMachine runs the script /in/life as root of the machine, on which no systemd runs.
const enterMachine = copyMachine + `mount --rbind /dev root/dev
chroot root /bin/bash /in/life >"$0/in/said" 2>&1
`

// bootMachine starts the machine: its first process is systemd, whose units end with the script
// /in/life. The machine ends with the status of the script. It cannot change this one: the settings of
// the kernel are read-only, and it lacks the capabilities for modules, the clock and a reboot.
const bootMachine = copyMachine + `cd root
mount -t sysfs -o ro sysfs sys && mount -t cgroup2 cgroup2 sys/fs/cgroup
mount --bind proc/sys proc/sys && mount -o remount,ro,bind proc/sys
mount -t tmpfs none dev && mkdir dev/pts dev/shm
for name in null zero full random urandom tty; do touch dev/$name && mount --bind /dev/$name dev/$name; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts && ln -s pts/ptmx dev/ptmx
mount -t tmpfs none dev/shm
echo >etc/fstab
mkdir -p run/systemd/system && cat >run/systemd/system/life.service <<end
[Unit]
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
TimeoutStartSec=infinity
Environment=HOME=/root XDG_CONFIG_HOME=/nonexistent DEBIAN_FRONTEND=noninteractive
ExecStart=/bin/bash /in/life
StandardOutput=append:/in/said
StandardError=append:/in/said
end
mkdir old && pivot_root . old && umount -l old && rmdir old && cd /
exec env -i container=test setpriv --bounding-set -sys_module,-sys_time,-sys_boot --inh-caps -all \
  /lib/systemd/systemd --unit=life.service
`

// unshared are the arguments of unshare for a machine of its own.
var unshared = []string{"--mount", "--net", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child"}

// runMachine runs a script as root of a copy of this machine, which entry makes, and returns what
// the script prints. The files are at /in.
func runMachine(t *testing.T, entry, script string, files map[string]string) string {
	t.Helper()
	dir := shortDir(t)
	for _, name := range []string{"over", "in", "in/up"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := filepath.Join(dir, "in")
	for name, from := range files {
		if err := os.WriteFile(filepath.Join(in, name), filetest.Read(t, from), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(in, "life"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	// Only a machine that hangs takes so long.
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "unshare", slices.Concat(unshared, []string{"/bin/sh", "-c", entry, dir})...)
	// The files of the copy are those of this machine: a NATS context that is selected here must not count.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "XDG_CONFIG_HOME=/nonexistent", "DEBIAN_FRONTEND=noninteractive"}
	out, err := cmd.CombinedOutput()
	said, _ := os.ReadFile(filepath.Join(in, "said"))
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, said)
	}
	return string(said)
}

// needMachine skips the test if no such machine can be made here, or if no systemd can run in it.
func needMachine(t *testing.T, withSystemd bool) {
	t.Helper()
	for _, program := range []string{"dpkg", "ip", "setpriv", "systemctl"} {
		needCommand(t, program)
	}
	if out, err := exec.Command("unshare", append(unshared, "true")...).CombinedOutput(); err != nil {
		lacking(t, "unshare", string(out))
	}
	if !withSystemd {
		return
	}
	if _, err := os.Stat("/lib/systemd/systemd"); err != nil {
		lacking(t, "systemd", err.Error())
	}
	// systemd makes a group of processes for each unit.
	groups := `mount -t cgroup2 none "$0" && mkdir "$0/probe" && rmdir "$0/probe"`
	if out, err := exec.Command("unshare", append(unshared, "/bin/sh", "-c", groups, t.TempDir())...).CombinedOutput(); err != nil {
		lacking(t, "systemd", strings.TrimSpace(string(out)))
	}
}
