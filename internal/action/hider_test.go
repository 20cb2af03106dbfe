package action

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However the text is cut into pieces, no byte of a secret is written, and every other byte is.
func TestHiderHidesWholeSecretsHoweverTheTextArrives(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.StringMatching("[abc]{1,4}")
		secrets := rapid.SliceOfN(letters, 0, 3).Draw(t, "secrets")
		pieces := rapid.SliceOfN(rapid.StringMatching("[abcx]{0,6}"), 0, 8).Draw(t, "pieces")
		text := strings.Join(pieces, "")
		covered := make([]bool, len(text))
		for _, s := range secrets {
			for i := range text {
				if strings.HasPrefix(text[i:], s) {
					for j := range s {
						covered[i+j] = true
					}
				}
			}
		}
		var want strings.Builder
		for i := range text {
			switch {
			case !covered[i]:
				want.WriteByte(text[i])
			case i == 0 || !covered[i-1]:
				want.WriteString(placeholder)
			}
		}
		var got strings.Builder
		h := NewHider(&got, secrets)
		for _, p := range pieces {
			if n, err := h.Write([]byte(p)); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if cut := got.String(); !strings.HasPrefix(want.String(), cut) {
			t.Fatalf("%q before the end, want the beginning of %q", cut, want.String())
		}
		if err := h.End(); err != nil || got.String() != want.String() {
			t.Fatalf("%q, %v; want %q", got.String(), err, want.String())
		}
	})
}
