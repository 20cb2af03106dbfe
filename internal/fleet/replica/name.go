package replica

import (
	"crypto/rand"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// nodeName returns a name that no other incarnation of any process has:
// host-pid-start-random. The random part alone is unique; the rest is for readers.
func nodeName(host string, started time.Time) string {
	if host == "" {
		host, _ = os.Hostname()
		host, _, _ = strings.Cut(host, ".")
	}
	host = strings.Trim(notInNames.ReplaceAllString(host, "-"), "-")
	if host == "" {
		host = "node"
	}
	host = host[:min(len(host), 40)]
	return fmt.Sprintf("%s-%d-%d-%s", host, os.Getpid(), started.Unix(), strings.ToLower(rand.Text()[:8]))
}
