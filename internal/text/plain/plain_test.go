package plain

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"
)

func TestTextIsTheSameInEveryFormInWhichAFileIsSaved(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.StringMatching(`[a-zé€𝄞 :"]{0,8}`), 1, 5).Draw(t, "lines")
		want := strings.Join(lines, "\n")
		windows := strings.Join(lines, "\r\n")
		for name, data := range map[string][]byte{
			"as it is": []byte(want), "windows": []byte(windows), "marked": []byte("\ufeff" + windows),
			"joined": []byte("\ufeff" + strings.Join(lines, "\n\ufeff")), "little": inUTF16(binary.LittleEndian, windows), "big": inUTF16(binary.BigEndian, want),
		} {
			if got, err := Text(data); err != nil || got != want {
				t.Fatalf("%s: %q, %v, want %q", name, got, err, want)
			}
		}
	})
}

func TestTextKeepsWhatIsNoMarkAndNoLineEnd(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a\rb", "a\ufeffb", "a \ufeff\nb", "\x00\xff", "\xff"} {
		if got, err := Text([]byte(text)); err != nil || got != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := Text([]byte("\xff\xfea")); !errors.Is(err, ErrUTF16) {
		t.Errorf("half a character: %v", err)
	}
}

// inUTF16 returns the text in UTF-16 with a byte order mark.
func inUTF16(order binary.AppendByteOrder, text string) (data []byte) {
	for _, unit := range append([]uint16{0xfeff}, utf16.Encode([]rune(text))...) {
		data = order.AppendUint16(data, unit)
	}
	return data
}
