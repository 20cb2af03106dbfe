package fleet

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
)

func TestConfirmTakesOnlyYesForYes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "no": false, "y": true} {
		a := &base.App{Stderr: io.Discard}
		yes, err := confirm(context.Background(), a, bufio.NewReader(strings.NewReader(text)), func() {}, "?")
		if yes != want || err != nil {
			t.Errorf("%q: %v, %v", text, yes, err)
		}
	}
	a := &base.App{Stderr: io.Discard}
	if yes, err := confirm(context.Background(), a, bufio.NewReader(strings.NewReader("")), func() {}, "?"); yes || err == nil {
		t.Errorf("no answer: %v, %v", yes, err)
	}
}
