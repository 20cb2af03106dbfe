// Package plain reads the text of files that people write and programs print: with or without a byte
// order mark, with the line ends of Windows or of Unix, in UTF-8 or UTF-16. All readers of text use it,
// so a file that one of them reads is a file that all of them read.
package plain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf16"
)

// mark is the byte order mark in UTF-8.
const mark = "\ufeff"

// ErrUTF16 is the error for text in UTF-16 that cannot be decoded.
var ErrUTF16 = errors.New("it is not whole in UTF-16, as its first bytes say: save it as UTF-8")

// Text returns data as UTF-8 with the line ends of Unix. It removes a byte order mark at the beginning of
// each line, since files that are joined have one in the middle. If data begins with the mark of
// UTF-16, as what PowerShell redirects does, Text decodes it. It leaves all other bytes as they are: which
// characters are right is for the caller to say.
func Text(data []byte) (string, error) {
	data, err := decode(data)
	if err != nil {
		return "", err
	}
	text := strings.TrimPrefix(string(data), mark)
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.ReplaceAll(text, "\n"+mark, "\n"), nil
}

// Unmarked returns data as UTF-8 without a byte order mark at its beginning. The line ends stay as they
// are: it is for what must be exact, like a secret or a payload.
func Unmarked(data []byte) ([]byte, error) {
	data, err := decode(data)
	return bytes.TrimPrefix(data, []byte(mark)), err
}

// Line returns one line of a text without its line end and without a byte order mark before it.
func Line(line string) string {
	return strings.TrimPrefix(strings.TrimRight(line, "\r\n"), mark)
}

// IsUTF16 reports whether a text that begins with these bytes is in UTF-16.
func IsUTF16(begin []byte) bool {
	return bytes.HasPrefix(begin, []byte{0xff, 0xfe}) || bytes.HasPrefix(begin, []byte{0xfe, 0xff})
}

func decode(data []byte) ([]byte, error) {
	if !IsUTF16(data) {
		return data, nil
	}
	order := binary.ByteOrder(binary.LittleEndian)
	if data[0] == 0xfe {
		order = binary.BigEndian
	}
	if len(data)%2 != 0 {
		return nil, ErrUTF16
	}
	units := make([]uint16, 0, len(data)/2)
	for i := 2; i < len(data); i += 2 {
		units = append(units, order.Uint16(data[i:]))
	}
	return []byte(string(utf16.Decode(units))), nil
}
