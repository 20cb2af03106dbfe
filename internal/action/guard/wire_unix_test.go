//go:build darwin || dragonfly || freebsd || linux || openbsd

package guard

import "testing"

// A worker that is killed before it has read a report resets the connection. The
// guard must outlive that: it has commands to end.
func TestAResetConnectionIsTheEndOfTheWorker(t *testing.T) {
	t.Parallel()
	worker, file, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	conn, err := unixConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := newEncoder(conn).encode(report{ID: 1, Kind: started, Pid: 1}); err != nil {
		t.Fatal(err)
	}
	worker.Close()
	if err := receive(conn, nil); err != nil {
		t.Error(err)
	}
}
