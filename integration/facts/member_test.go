package facts_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// member is a server of a cluster. Port is its port for routes, and Routes are those of all members.
// Without Routes it is a single server that syncs each write, and Port is its port for clients.
type member struct {
	Name, Store string
	Port        int
	Routes      []int
}

func (m member) configure(o *server.Options) {
	o.ServerName, o.StoreDir = m.Name, m.Store
	if len(m.Routes) == 0 {
		o.Port, o.SyncAlways = m.Port, true
		return
	}
	o.Cluster = server.ClusterOpts{Name: "facts", Host: "127.0.0.1", Port: m.Port}
	for _, port := range m.Routes {
		o.Routes = append(o.Routes, server.RoutesFromStr(fmt.Sprintf("nats-route://127.0.0.1:%d", port))...)
	}
}

// memberEnv is the environment variable that makes this test binary a server. So there is a process to
// kill: a server that shuts down in order hands its leadership over first.
const memberEnv = "CRONCE_FACTS_MEMBER"

// runMember runs until it is killed, or its parent, which holds its stdin, ends.
func runMember(config string) (exit int) {
	var m member
	o := server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, NoSigs: true, NoLog: true}
	err := json.Unmarshal([]byte(config), &m)
	if err == nil {
		m.configure(&o)
		var s *server.Server
		if s, err = server.NewServer(&o); err == nil {
			s.Start()
			_, _ = io.Copy(io.Discard, os.Stdin)
			s.Shutdown()
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// startMember runs a server in its own process, and returns a function that kills it.
func startMember(t *testing.T, m member) (kill func()) {
	t.Helper()
	config, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), memberEnv+"="+string(config))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(kill)
	return kill
}
