package cron

import (
	"encoding/json"
	"flag"
	"math/bits"
	"os"
	"testing"

	"github.com/cronce-io/cronce/internal/lab/filetest"
)

var rewrite = flag.Bool("rewrite-hash", false, "write testdata/hash.json anew; the diff is a break of the protocol")

type hashVector struct {
	Job   string `json:"job"`
	Field string `json:"field"`
	Size  int    `json:"size"`
	Hash  int    `json:"hash"`
}

// The vectors are part of the protocol. If they changed, every job with an H would have other slots,
// and clients in other languages would compute different ones.
func TestHashAgreesWithTheVectorsOfTheProtocol(t *testing.T) {
	t.Parallel()
	const file = "../../../job/testdata/hash.json"
	if *rewrite {
		var vectors []hashVector
		for _, job := range []string{"report", "Report", "a", "backup-db_1", "0123456789012345678901234567890123456789012345678901234567890123"} {
			for _, f := range cronFields {
				size := f.hashMax - f.min + 1
				vectors = append(vectors, hashVector{job, f.name, size, StableHash(job, f.name, size)})
			}
			vectors = append(vectors, hashVector{job, "spread", 300, StableHash(job, "spread", 300)})
		}
		data, _ := json.MarshalIndent(vectors, "", "  ")
		if err := os.WriteFile(file, append(data, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data := filetest.Read(t, file)
	var vectors []hashVector
	if err := json.Unmarshal(data, &vectors); err != nil || len(vectors) == 0 {
		t.Fatal(len(vectors), err)
	}
	for _, v := range vectors {
		if got := StableHash(v.Job, v.Field, v.Size); got != v.Hash {
			t.Errorf("%+v: got %d", v, got)
		}
	}
}

// The test computes FNV-1a from its definition, without the library.
func TestHashIsFNV1aOverNameZeroAndField(t *testing.T) {
	t.Parallel()
	h := uint64(14695981039346656037)
	for _, c := range []byte("report\x00minute") {
		h = (h ^ uint64(c)) * 1099511628211
	}
	if got, want := StableHash("report", "minute", 60), int(h%60); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestHResolvesToTheHashOfTheJobsName(t *testing.T) {
	t.Parallel()
	const name = "report"
	fields := map[string]cronField{}
	for _, f := range cronFields {
		fields[f.name] = f
	}
	for _, c := range []struct {
		field, text string
		low, size   int
		step        bool
	}{
		{"minute", "H", 0, 60, false},
		{"dom", "H", 1, 28, false}, // every month has these days
		{"month", "H", 1, 12, false},
		{"dow", "H", 0, 7, false},
		{"hour", "H(9-17)", 9, 9, false},
		{"dom", "H(29-31)", 29, 3, false},
		{"dow", "H(MON-FRI)", 1, 5, false},
		{"minute", "H/15", 0, 15, true},
		{"minute", "H(10-29)/5", 10, 5, true},
	} {
		f := fields[c.field]
		want := c.low + StableHash(name, c.field, c.size)
		parsed, err := f.parse(name, c.text)
		set := parsed.values
		if err != nil {
			t.Fatal(err)
		}
		if got := bits.TrailingZeros64(set); got != want || (bits.OnesCount64(set) > 1) != c.step {
			t.Errorf("%s %s is %b, want it to begin at %d", c.field, c.text, set, want)
		}
	}
}
