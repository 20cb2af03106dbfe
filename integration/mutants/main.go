package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
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
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := checkUnmutated(ctx, root, chosen); err != nil {
		return err
	}
	var failed []string
	for _, m := range chosen {
		began := time.Now()
		if err := m.kill(ctx, root, work); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted")
			}
			failed = append(failed, m.name)
			fmt.Printf("FAIL  %-36s %v\n", m.name, err)
			continue
		}
		fmt.Printf("ok    %-36s killed by %s (%v)\n", m.name, m.test, time.Since(began).Round(100*time.Millisecond))
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d are not killed: %s", len(failed), len(chosen), strings.Join(failed, ", "))
	}
	fmt.Printf("%d mutants, all killed\n", len(chosen))
	return nil
}

// choose returns the mutants of these names; all for none.
func choose(names []string) ([]mutant, error) {
	if len(names) == 0 {
		return mutants, nil
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

// pkg is the folder of the test that has to fail.
func (m mutant) pkg() string {
	if m.in != "" {
		return m.in
	}
	return path.Dir(m.file)
}

// mutate returns the mutated source.
func (m mutant) mutate(root string) (string, error) {
	source, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		return "", fmt.Errorf("%s: %s has %d times, want once:\n%s", m.name, m.file, n, m.old)
	}
	return strings.Replace(string(source), m.old, m.new, 1), nil
}

// checkUnmutated runs the named tests on the code as it is: they must pass, or a
// failure says nothing of a mutant.
func checkUnmutated(ctx context.Context, root string, chosen []mutant) error {
	tests := map[string][]string{}
	for _, m := range chosen {
		if !slices.Contains(tests[m.pkg()], m.test) {
			tests[m.pkg()] = append(tests[m.pkg()], m.test)
		}
	}
	for pkg, names := range tests {
		output, err := goTest(ctx, root, pkg, "^("+strings.Join(names, "|")+")$", nil)
		if err != nil {
			return fmt.Errorf("without any mutant, the tests of %s do not pass: %w\n%s", pkg, err, output)
		}
		for _, name := range names {
			if !strings.Contains(output, "--- PASS: "+name+" (") {
				return fmt.Errorf("%s is not run in %s", name, pkg)
			}
		}
		fmt.Printf("ok    unmutated: %d tests of %s\n", len(names), pkg)
	}
	return nil
}

// kill runs the mutant's test with the mutant built in.
func (m mutant) kill(ctx context.Context, root, work string) error {
	source, err := m.mutate(root)
	if err != nil {
		return err
	}
	file, overlay := filepath.Join(work, m.name+".go"), filepath.Join(work, m.name+".json")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		return err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): file}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, replace, 0o644); err != nil {
		return err
	}
	// By the environment, so that programs which the test builds are mutated too.
	output, _ := goTest(ctx, root, m.pkg(), "^"+m.test+"$", []string{"GOFLAGS=" + os.Getenv("GOFLAGS") + " -overlay=" + overlay})
	return m.judge(output)
}

// judge says why the output of the mutant's test is not that of a kill.
func (m mutant) judge(output string) error {
	switch {
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return fmt.Errorf("does not compile:\n%s", output)
	case strings.Contains(output, "--- FAIL: "+m.test+" ("):
		return nil
	case strings.Contains(output, "--- PASS: "+m.test+" ("):
		return fmt.Errorf("survives %s: %s", m.test, m.breaks)
	case strings.Contains(output, "panic: ") && strings.Contains(output, m.test):
		return nil // it took the test binary with it, or hung
	}
	return fmt.Errorf("%s was not run:\n%s", m.test, output)
}

func goTest(ctx context.Context, root, pkg, pattern string, env []string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-vet=off", "-timeout=3m", "-run="+pattern, "./"+pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	output, err := cmd.CombinedOutput()
	return string(output), err
}
