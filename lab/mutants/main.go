package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	if errLists != nil {
		return errLists
	}
	part := flags.String("part", "1/1", "run only every Nth mutant, from the Kth on: `K/N`")
	if err := flags.Parse(names); err != nil {
		return err
	}
	names = flags.Args()
	torture := len(names) > 0 && names[0] == "torture"
	chosen, err := []mutant(nil), error(nil)
	if !torture {
		chosen, err = choose(names, *part)
	}
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cronce-io/cronce").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if torture {
		return sabotageAll(ctx, root, work, names[1:])
	}
	if err := checkUnmutated(ctx, root, chosen); err != nil {
		return err
	}
	failed, err := killAll(ctx, root, work, chosen)
	if err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d are not killed: %s", len(failed), len(chosen), strings.Join(failed, ", "))
	}
	fmt.Printf("%d mutants, all killed\n", len(chosen))
	return nil
}

// killAll runs the tests of the mutants, as many at a time as there are processors, and returns the
// names of the mutants that were not killed. If a mutant is not killed, its test runs once more, alone:
// it may have reached a deadline while others were compiled.
func killAll(ctx context.Context, root, work string, chosen []mutant) (failed []string, err error) {
	var mu sync.Mutex
	var again []mutant
	var group errgroup.Group
	group.SetLimit(runtime.NumCPU())
	for _, m := range chosen {
		group.Go(func() error {
			began := time.Now()
			err := m.kill(ctx, root, work)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				again = append(again, m)
				return nil
			}
			fmt.Printf("ok    %-36s killed by %s (%v)\n", m.name, m.test, time.Since(began).Round(100*time.Millisecond))
			return nil
		})
	}
	_ = group.Wait()
	for _, m := range again {
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		if err := m.kill(ctx, root, work); err != nil {
			failed = append(failed, m.name)
			fmt.Printf("FAIL  %-36s %v\n", m.name, err)
			continue
		}
		fmt.Printf("ok    %-36s killed by %s (at the second run)\n", m.name, m.test)
	}
	return failed, nil
}

// choose returns the mutants with these names. If there are no names, it returns a part of all mutants.
func choose(names []string, part string) ([]mutant, error) {
	if len(names) == 0 {
		return partOf(mutants, part)
	}
	var chosen []mutant
	for _, name := range names {
		i := slices.IndexFunc(mutants, func(m mutant) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no mutant is named %q", name)
		}
		chosen = append(chosen, mutants[i])
	}
	return chosen, nil
}

// partOf returns every nth mutant, from the kth on, for the part "k/n".
func partOf(all []mutant, part string) (chosen []mutant, err error) {
	var k, n int
	if _, err := fmt.Sscanf(part, "%d/%d", &k, &n); err != nil || k < 1 || k > n {
		return nil, fmt.Errorf("invalid -part %q: want K/N with K from 1 to N", part)
	}
	for i := k - 1; i < len(all); i += n {
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// pkg returns the folder of the test that must fail.
func (m mutant) pkg() string {
	if m.in != "" {
		return m.in
	}
	return path.Dir(m.file)
}

func (m mutant) mutate(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s: %s contains this text %d times, want once:\n%s", m.title(), m.file, n, m.old)
	}
	return strings.Replace(string(source), m.old, m.new, 1), nil
}

// checkUnmutated runs the mutants' tests on the unchanged code. They must pass. Otherwise a failure
// would prove nothing about a mutant.
func checkUnmutated(ctx context.Context, root string, chosen []mutant) error {
	tests := map[string][]string{}
	for _, m := range chosen {
		if !slices.Contains(tests[m.pkg()], m.test) {
			tests[m.pkg()] = append(tests[m.pkg()], m.test)
		}
	}
	for pkg, names := range tests {
		pattern := "^(" + strings.Join(names, "|") + ")$"
		output, err := goTest(ctx, root, pkg, pattern, nil)
		if err != nil { // perhaps the machine was busy
			fmt.Printf("again unmutated: tests of %s failed: %v\n%s\n", pkg, err, output)
			output, err = goTest(ctx, root, pkg, pattern, nil)
		}
		if err != nil {
			return fmt.Errorf("without any mutant, the tests of %s do not pass: %w\n%s", pkg, err, output)
		}
		for _, name := range names {
			if !strings.Contains(output, "--- PASS: "+name+" (") {
				return fmt.Errorf("%s was not run in %s", name, pkg)
			}
		}
		fmt.Printf("ok    unmutated: %d tests of %s\n", len(names), pkg)
	}
	return nil
}

// kill runs the mutant's test with the mutant built in.
func (m mutant) kill(ctx context.Context, root, work string) error {
	overlay, err := m.overlay(root, work)
	if err != nil {
		return err
	}
	// The overlay is set in the environment, so that programs which the test builds have the mutant too.
	output, _ := goTest(ctx, root, m.pkg(), "^"+m.test+"$", []string{"GOFLAGS=" + os.Getenv("GOFLAGS") + " -overlay=" + overlay})
	return m.judge(output)
}

// overlay writes the mutated source, and a file for the flag -overlay of go, which replaces the real
// source with it. It returns the path of that file.
func (m mutant) overlay(root, work string) (path string, err error) {
	source, err := m.mutate(root)
	if err != nil {
		return "", err
	}
	file, path := filepath.Join(work, m.name+".go"), filepath.Join(work, m.name+".json")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): file}})
	if err != nil {
		return "", err
	}
	return path, os.WriteFile(path, replace, 0o644)
}

// judge returns an error unless the output of go test shows that the mutant's test failed.
func (m mutant) judge(output string) error {
	switch {
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return fmt.Errorf("does not compile:\n%s", output)
	case strings.Contains(output, "--- FAIL: "+m.test+" ("):
		return nil
	case strings.Contains(output, "--- PASS: "+m.test+" ("):
		return fmt.Errorf("survives %s: %s", m.test, m.breaks)
	case strings.Contains(output, "panic: ") && strings.Contains(output, m.test):
		return nil // the test binary crashed or hung
	}
	return fmt.Errorf("%s was not run:\n%s", m.test, output)
}

// timeout bounds one run of go test. It is longer than natstest.Patience. So a test that waits for an
// event in vain fails by itself, and judge does not take a slow test for one that failed.
const timeout = 5 * time.Minute

func goTest(ctx context.Context, root, pkg, pattern string, env []string) (string, error) {
	module, pkg := inModule(pkg)
	cmd := exec.CommandContext(ctx, "go", "test", "-tags=long", "-v", "-count=1", "-vet=off", "-timeout="+timeout.String(), "-run="+pattern, "./"+pkg)
	cmd.Dir, cmd.Env = filepath.Join(root, module), append(os.Environ(), env...)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// inModule returns the folder of the module that has a package, and the package's folder in it.
func inModule(folder string) (module, pkg string) {
	if rest, ok := strings.CutPrefix(folder, "lab/"); ok {
		return "lab", rest
	}
	return ".", folder
}
