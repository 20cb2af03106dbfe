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

// nodeName is a name that no other incarnation has, of this process or any other:
// host-pid-start-random. The random part alone would do; the rest is for people.
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
