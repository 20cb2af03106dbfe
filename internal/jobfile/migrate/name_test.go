package migrate

import "testing"

func TestJobIsNamedAfterItsProgramAndNotAfterTheRedirection(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"backup.sh >> /var/log/backup.log":         "backup",
		"/usr/bin/backup.sh --all >/dev/null 2>&1": "backup",
		"backup.sh &>/var/log/all.log":             "backup",
		"backup.sh 2>>'/var/log/with a space.log'": "backup",
		`import.py <"/data/in put.csv" | mail ops`: "import-mail-ops",
		"cd /srv && ./report.sh daily>out.txt":     "srv-report-daily",
		"sort<in>out":                              "sort",
		"a.sh 1>&2 && b.sh >| /tmp/x":              "a-b",
		"> /tmp/only":                              "job",
		"psql -c 'select 1' <<< input":             "psql-select-1",
	} {
		if got := CommandName(command); got != want {
			t.Errorf("%s: named %q, want %q", command, got, want)
		}
	}
}
