package base

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
)

func TestExitCodes(t *testing.T) {
	t.Parallel()
	plain := errors.New("x")
	for _, tc := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {plain, 1}, {Usage(plain), 2}, {Try(Usage(plain), "y"), 2}, {fmt.Errorf("in: %w", Usage(plain)), 2},
		{ErrFound, 3}, {fmt.Errorf("%w: 2 slots", ErrFound), 3}, {&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, 0},
		{fmt.Errorf("connect: %w", &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}), 1}, // the server's connection
		{Usage(nil), 0}, {Try(nil, "y"), 0},
	} {
		if got := ExitCode(tc.err); got != tc.want {
			t.Errorf("exit code of %v is %d, want %d", tc.err, got, tc.want)
		}
	}
}
