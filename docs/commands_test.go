//go:build unix

package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/internal/lab/natstest"
)

// how a command of a page is run by a test. With a test's name (by) or a reason
// (never) it is not run here; else here, on a stage.
type how struct {
	status  []int  // that it may end with; none: 0
	shows   string // what it prints, a regular expression
	endless bool   // it runs until it shows that; then the test sends TERM, and it ends with 0
	by      string // "FILE NAME": the test, or script, that runs it
	never   string // why no test can run it
}

const quickstart = "go run ./cmd/cronce run -f examples/quickstart.yaml"

// commands has every command that the pages show. A command that is missing here fails
// the test: add how to run it.
var commands = map[string]how{
	quickstart:                               {endless: true, shows: "slot succeeded"}, // .ci/quickstart does it as a newcomer
	quickstart + " --http 127.0.0.1:8080":    {by: `cmd/cronce/http_test.go "run", "-f", file, "--server", s.ClientURL(), "--http"`},
	"go test -timeout 60m ./...":             {by: ".ci/run go test -timeout 60m ./..."},
	"go run ./cmd/cronce slot ls --since 1m": {shows: "tick:.*succeeded"},
	"cronce-lab torture --duration 5m":       {by: "integration/torture_test.go TestTorture"},

	"go install ./cmd/cronce":            {by: "integration/release_linux_test.go TestReleasesOfOneCommitAreEqual"},
	"go install -C lab ./cmd/cronce-lab": {by: "integration/main_test.go lab/cmd/cronce-lab"},
	"cronce version":                     {shows: "(?s)cronce.*tzdata"},

	"cronce job apply -f jobs.yaml --dry-run":                             {shows: "report"},
	"cronce job apply -f jobs.yaml":                                       {shows: "report"},
	"cronce job show report":                                              {shows: "(?s)schedule.*next"},
	"cronce job pause report":                                             {shows: "paused report"},
	"cronce job release report":                                           {shows: "report"},
	`cronce job trigger report --key invoice-7 --payload '{"invoice":7}'`: {shows: "report:@invoice-7"},
	"cronce job trigger report --key invoice-8 --at 2026-11-22T07:00:00Z": {shows: "report:@invoice-8"},
	"cronce job trigger report --wait":                                    {shows: "(?s)report:@.* is triggered.*succeeded"},
	"cronce slot wait report:@invoice-7":                                  {shows: "report:@invoice-7 succeeded"},
	"cronce watch --job report --follow-output":                           {endless: true, shows: `report:\S+ \| made`},
	"cronce slot tail report:@invoice-7":                                  {shows: "report:@invoice-7 succeeded"},
	"cronce slot ls --job report --limit 10 --newest":                     {shows: "report:"},
	"cronce job backfill report --from 2026-11-20T12:00:00Z":              {shows: "report has"},
	"cronce run -f jobs.yaml":                                             {endless: true, shows: "slot succeeded"},
	"cronce check jobs.yaml":                                              {shows: "jobs.yaml is valid: 2 jobs"},
	"cronce check examples/alerts.yaml":                                   {shows: "alerts.yaml is valid: 3 jobs"},
	"cronce ui":                                                           {by: `cmd/cronce/http_test.go "ui", "--listen"`},
	"cronce run -f jobs.yaml --priority 5":                                {endless: true, shows: "node is up"},
	"nats sub 'cronce.slot.>'":                                            natsCLI,
	"nats stream view cronce_slots":                                       natsCLI,
	"nats kv watch cronce_ledger":                                         natsCLI,
	"nats sub 'cronce.event.>'":                                           natsCLI,

	"printf %s cronce/report:2026-11-21T07:00:00Z | sha256sum | cut -c1-32": {shows: "^[0-9a-f]{32}\n$"},

	"cronce setup":                 {by: "integration/examples_test.go setup"},
	"cronce job apply -f web.yaml": {by: "integration/examples_test.go web.yaml"},
	"node web.js":                  {by: "integration/examples_test.go web.js"},
	"node http.js":                 {by: "integration/examples_test.go http.js"},
	"cronce run -f sidecar.yaml":   {by: "integration/examples_test.go sidecar.yaml"},
	"cronce job trigger report":    {by: "integration/examples_test.go trigger"},

	"npm ci --prefix ../../clients/node":                                          {by: "Taskfile.yml npm"},
	"git clone https://github.com/cronce-io/cronce":                               {never: "fetches the project from the network"},
	"npm pack ./cronce/clients/node":                                              {by: "clients/node/test/package.test.js npm pack"},
	"npm install ./cronce-io-client-0.1.0.tgz":                                    {by: "clients/node/test/package.test.js cronce-io-client-0.1.0.tgz"},
	"cronce-lab conformance peer --cmd 'node clients/node/peer.js'":               {by: "lab/conformance/node_peer_test.go /peer.js"},
	"cronce-lab torture --node-cmd 'node clients/node/peer.js' --duration 5m":     {by: "integration/node_test.go --node-cmd"},
	"cronce-lab conformance vectors --cmd 'node clients/node/vectors.js'":         {by: "lab/conformance/node_test.go /vectors.js"},
	"node service.js --server nats://127.0.0.1:4222 --job report --queue default": {by: "integration/node_test.go service.js"},

	"cronce import crontab my.crontab >imported.yaml":          {status: []int{3}, shows: "MAILTO"},
	"cronce import systemd units.txt >imported.yaml":           {status: []int{3}, shows: "Persistent"},
	"cronce import sidekiq schedule.yml >imported.yaml":        {},
	"cronce import github nightly.yml >imported.yaml":          {status: []int{3}, shows: "placeholder"},
	"python3 celery_beat.py beat >imported.yaml":               {by: "examples/migrate/python_test.go celery_beat.py"},
	"python3 apscheduler_jobs.py scheduler >imported.yaml":     {by: "examples/migrate/python_test.go apscheduler_jobs.py"},
	"cronce import k8s cronjob.yaml >imported.yaml":            {status: []int{0, 3}},
	"cronce import crontab my.crontab --shadow >imported.yaml": {status: []int{3}, shows: "MAILTO"},
	"cronce verify --against /var/log/syslog -f imported.yaml": {by: "cmd/cronce/verify_against_test.go --against"},
	"cronce run -f imported.yaml":                              {endless: true, shows: "shadow jobs"},
	"cronce check imported.yaml":                               {shows: "Europe/Berlin.*07:00:00"},

	"cronce doctor": {status: []int{0, 3}, shows: "nats-server"},
	"cronce setup --queue default --queue reports":                                 {},
	"cronce auth caller --job report":                                              {shows: "slot.*report"},
	"cronce auth worker --queue reports":                                           {shows: "publish"},
	"cronce doctor --remove-unreadable":                                            {by: "integration/unreadable_test.go --remove-unreadable"},
	"cronce auth --accounts > nats.conf":                                           {},
	"cronce auth --accounts setup producer worker operator viewer --queue reports": {shows: "imports"},
	"cronce setup --lease 30s":                                                     {shows: "lease"},
	"cronce setup --retention 336h":                                                {shows: "retention"},
	"cronce verify":                                                                {shows: "every slot is accounted for"},
	"cronce verify --repair":                                                       {shows: "every slot is accounted for"},
	"cronce slot ls --state failed --since 24h":                                    {shows: "report:"},
	"cronce job ls -o json | jq -r 'select(.paused | not).job' > paused":           {},
	"xargs -n 1 cronce job pause < paused":                                         {shows: "(?s)paused report.*paused tick"},
	"cronce slot ls --state pending,running,retrying":                              {},
	"xargs -n 1 cronce job resume < paused":                                        {shows: "(?s)resumed report.*resumed tick"},
	"cronce node ls":                                                               {shows: "alive"},
	"cronce slot explain report:2026-11-21T07:00:00Z":                              {shows: "failed"},
	"cronce slot retry report:2026-11-21T07:00:00Z":                                {shows: "report:"},
	`for s in KV_cronce_state cronce_slots cronce_timers cronce_events KV_cronce_nodes KV_cronce_ledger KV_cronce_jobs; do nats stream backup "$s" "backup/$s"; done`: backup,
	`for s in backup/*; do nats stream restore "$s"; done`: backup,
}

var (
	natsCLI = how{by: "integration/natscli_linux_test.go TestNatsCommandsOfTheReadmeShowSlots"}
	backup  = how{by: "integration/backup_linux_test.go TestBackupOfTheOperationsPageIsRestored"}
)

// The stage's jobs. Some slots of report fail for good.
const stageJobs = `version: 1
jobs:
  - name: report
    schedule: "* * * * * *"
    action: {exec: ["/bin/sh", "-c", "echo made; case $CRONCE_SLOT in *[02468]Z) exit 65 ;; esac"], dir: /, env: {LANG: C.UTF-8}, clean_env: true}
  - name: tick
    schedule: "* * * * * *"
    action: {exec: [/bin/echo, tick]}
`

func TestPagesCommandsAreRun(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/cronce").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	seen := map[string]bool{}
	pages := map[string][]fence{}
	var order []string
	for _, f := range fences(t) {
		if f.lang != "sh" || strings.HasPrefix(f.text, "curl ") && f.file == "docs/api.md" {
			continue // see TestCurlLinesOfTheAPIWork
		}
		if pages[f.file] == nil {
			order = append(order, f.file)
		}
		pages[f.file] = append(pages[f.file], f)
		for _, command := range statements(f.text) {
			seen[command] = true
		}
	}
	for command := range commands {
		if !seen[command] {
			t.Errorf("no page has the command %q any more: take it out of the table", command)
		}
	}
	for _, page := range order {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			var s *stage
			for _, f := range pages[page] {
				for _, command := range statements(f.text) {
					h, known := commands[command]
					switch {
					case !known:
						t.Errorf("%s: the command %q is not in the table of docs/commands_test.go: say there how a test runs it", f, command)
					case h.by != "":
						checkRunBy(t, f, command, h.by)
					case h.never == "":
						if s == nil {
							s = newStage(t, bin, page)
						}
						s.run(t, f, command, h)
					}
				}
			}
		})
	}
}

var comment = regexp.MustCompile(`(^|\s+)#.*$`)

// statements are the commands of a fence, a line each, without comments.
func statements(text string) (all []string) {
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(comment.ReplaceAllString(strings.TrimSpace(line), "")); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// checkRunBy holds a reference to a test against its file.
func checkRunBy(t *testing.T, f fence, command, by string) {
	t.Helper()
	file, mark, _ := strings.Cut(by, " ")
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil || !strings.Contains(string(text), mark) {
		t.Errorf("%s: %q is said to be run by %s, which has no %q (%v)", f, command, file, mark, err)
	}
}

// stage is a server, a working fleet and a directory where a page's commands are
// typed.
type stage struct {
	dir, failed string
	env         []string
}

func newStage(t *testing.T, bin, page string) *stage {
	t.Helper()
	server := natstest.Run(t)
	dir := t.TempDir()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"examples", "docs"} {
		if err := os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{"jobs.yaml": stageJobs}
	for _, f := range fencesOf(page, string(filetest.Read(t, filepath.Join("..", page)))) {
		switch {
		case f.lang == "crontab":
			files["my.crontab"] = f.text
		case f.lang == "text" && strings.Contains(f.text, "class: "):
			files["schedule.yml"] = f.text
		case f.lang == "text" && strings.Contains(f.text, "- cron: "):
			files["nightly.yml"] = f.text
		case f.lang == "ini":
			files["units.txt"] = f.text
		case strings.HasPrefix(f.text, "apiVersion:"):
			files["cronjob.yaml"] = f.text
		case strings.Contains(f.text, "beat_schedule"):
			files["beat.py"] = f.text
		case strings.Contains(f.text, "BlockingScheduler"):
			files["scheduler.py"] = f.text
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{dir: dir, env: append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "CRONCE_SERVER="+server.ClientURL(),
		"HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)}
	out := s.start(t, "cronce run -f jobs.yaml")
	failed := regexp.MustCompile(`slot failed slot=(report:\S+)`)
	natstest.Eventually(t, "a slot to fail", func() bool {
		m := failed.FindStringSubmatch(out.text())
		if m != nil {
			s.failed = m[1]
		}
		return m != nil
	})
	// A later apply of the file then changes something.
	edited := strings.Replace(stageJobs, "name: report\n", "name: report\n    timeout: 1m\n", 1)
	if err := os.WriteFile(filepath.Join(dir, "jobs.yaml"), []byte(edited), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

var day = regexp.MustCompile(`2026-11-(\d\d)T`)

// typed is a command as it is typed on the stage: with the program that was built,
// a slot that has failed there, and days around today in place of those around the
// pages' 21 November.
func (s *stage) typed(command string) string {
	command = strings.ReplaceAll(command, "go run ./cmd/cronce", "cronce")
	const failed = "report:2026-11-21T07:00:00Z"
	parts := strings.Split(command, failed) // whose day is that of the stage already
	for i := range parts {
		parts[i] = day.ReplaceAllStringFunc(parts[i], aroundToday)
	}
	return strings.Join(parts, s.failed)
}

func aroundToday(match string) string {
	at, err := time.Parse("2006-01-02T", match)
	if err != nil {
		return match
	}
	by := at.Sub(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC))
	return time.Now().UTC().Add(by).Format("2006-01-02T")
}

func (s *stage) run(t *testing.T, f fence, command string, h how) {
	t.Helper()
	typed := s.typed(command)
	if h.endless {
		out := s.start(t, typed)
		shows := regexp.MustCompile(h.shows)
		natstest.Eventually(t, command+" to show "+h.shows, func() bool { return shows.MatchString(out.text()) })
		out.end(t)
		return
	}
	cmd := s.command(typed)
	text, _ := cmd.CombinedOutput()
	want := h.status
	if want == nil {
		want = []int{0}
	}
	if !slices.Contains(want, cmd.ProcessState.ExitCode()) {
		t.Errorf("%s: %q ends with %v, want %v:\n%s", f, typed, cmd.ProcessState, want, text)
	}
	if !regexp.MustCompile(h.shows).Match(text) {
		t.Errorf("%s: %q does not show %q:\n%s", f, typed, h.shows, text)
	}
}

func (s *stage) command(typed string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", typed)
	cmd.Dir, cmd.Env = s.dir, s.env
	return cmd
}

// output is a command that runs, and what it prints into a file.
type output struct {
	cmd  *exec.Cmd
	path string
	done chan struct{}
}

func (s *stage) start(t *testing.T, typed string) *output {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "output")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := &output{s.command("exec " + typed), file.Name(), make(chan struct{})}
	o.cmd.Stdout, o.cmd.Stderr = file, file
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = o.cmd.Wait(); close(o.done) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s printed:\n%s", typed, o.text())
		}
		_ = o.cmd.Process.Kill()
		<-o.done
	})
	return o
}

func (o *output) text() string {
	text, err := os.ReadFile(o.path)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(bytes.ToValidUTF8(text, nil))
}

func (o *output) end(t *testing.T) {
	t.Helper()
	if err := o.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	select {
	case <-o.done:
		if !o.cmd.ProcessState.Success() {
			t.Errorf("%v ends with %v", o.cmd.Args, o.cmd.ProcessState)
		}
	case <-time.After(natstest.Patience):
		t.Errorf("%v does not end", o.cmd.Args)
	}
}
