package jobs

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/cmd/cronce/base"
	"github.com/cronce-io/cronce/internal/lab/filetest"
	"github.com/cronce-io/cronce/job"
)

func TestPayloadOfAFileOrOfStandardInputOrOfTheFlag(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "payload.json")
	write := func(text string) {
		filetest.Write(t, path, text)
	}
	big := `"` + strings.Repeat("x", job.MaxPayload) + `"`
	for _, test := range []struct{ file, stdin, flag, want, wrong string }{
		{file: `{"a":1}`, flag: "@" + path, want: `{"a":1}`},
		{file: "\ufeff{\"a\":1}\r\n", flag: "@" + path, want: "{\"a\":1}\r\n"},
		{stdin: "\xff\xfe7\x00", flag: "-", want: "7"},
		{stdin: `{"b":2}`, flag: "-", want: `{"b":2}`},
		{flag: `{"c":3}`, want: `{"c":3}`},
		{flag: "@" + path + ".not", wrong: "no such file"},
		{file: "", flag: "@" + path, wrong: "is empty"},
		{file: big, flag: "@" + path, wrong: "larger than 256 KiB"},
		{stdin: big, flag: "-", wrong: "larger than 256 KiB"},
		{flag: big, wrong: "larger than 256 KiB"},
	} {
		write(test.file)
		a := &base.App{Stdin: strings.NewReader(test.stdin)}
		got, err := readPayload(a, test.flag)
		if test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong) || len(err.Error()) > 300) {
			t.Errorf("%.40s: %.300v, want %q", test.flag, err, test.wrong)
		}
		if test.wrong == "" && (err != nil || string(got) != test.want) {
			t.Errorf("%.40s: %s, %v; want %s", test.flag, got, err, test.want)
		}
	}
}
