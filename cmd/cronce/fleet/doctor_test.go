package fleet

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

func TestDoctorHelpListsEveryCheck(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../internal/check/doctor/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	added := regexp.MustCompile(`(?:\.add\(\w+, |name, why :?= |\{layout\.Field\w+, \w+, )"(\w+)"`)
	var made []string
	for _, file := range files {
		text := filetest.Read(t, file)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range added.FindAllStringSubmatch(string(text), -1) {
			made = append(made, m[1])
		}
	}
	listed := strings.FieldsFunc(doctorChecks, func(r rune) bool { return strings.ContainsRune(", .\n", r) })
	slices.Sort(made)
	slices.Sort(listed)
	if made = slices.Compact(made); !slices.Equal(made, listed) {
		t.Errorf("the help lists\n%v\nthe code has\n%v", listed, made)
	}
}
