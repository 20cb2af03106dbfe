package tzdata

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/cronce-io/cronce/internal/text/suggest"
)

// abbreviations are short forms that are no names of zones, and the zones of most people who write them.
var abbreviations = map[string]string{
	"Z": "UTC", "ZULU": "UTC",
	"PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "MDT": "America/Denver",
	"CST": "America/Chicago or Asia/Shanghai", "CDT": "America/Chicago", "EDT": "America/New_York",
	"AKST": "America/Anchorage", "AKDT": "America/Anchorage", "AST": "America/Halifax or Asia/Riyadh", "BRT": "America/Sao_Paulo",
	"BST": "Europe/London or Asia/Dhaka", "IST": "Asia/Kolkata, Europe/Dublin or Asia/Jerusalem", "CEST": "Europe/Berlin",
	"EEST": "Europe/Athens", "WEST": "Europe/Lisbon", "MSK": "Europe/Moscow", "SAST": "Africa/Johannesburg", "GST": "Asia/Dubai",
	"PKT": "Asia/Karachi", "ICT": "Asia/Bangkok", "SGT": "Asia/Singapore", "HKT": "Asia/Hong_Kong", "JST": "Asia/Tokyo", "KST": "Asia/Seoul",
	"AWST": "Australia/Perth", "ACST": "Australia/Darwin", "AEST": "Australia/Brisbane or Australia/Sydney", "AEDT": "Australia/Sydney",
	"NZST": "Pacific/Auckland", "NZDT": "Pacific/Auckland",
}

var offset = regexp.MustCompile(`(?i)^(?:UTC|GMT)? ?([+-])([0-9]{1,2})(?::?00)?$`)

// meant returns the zone that the author of an unknown name most likely meant, or "". It does not go by
// the spelling of short names: BST is near EST, and five hours away.
func meant(name string) string {
	if zone := abbreviations[strings.ToUpper(name)]; zone != "" {
		return zone
	}
	if m := offset.FindStringSubmatch(name); m != nil {
		return ofOffset(m[1], m[2])
	}
	near := suggest.Nearest(name, Names())
	const short = 4
	if len(name) > short || strings.EqualFold(near, name) || strings.HasSuffix(strings.ToLower(near), "/"+strings.ToLower(name)) {
		return near
	}
	return ""
}

// ofOffset returns the zone with an offset in whole hours. The signs of Etc/GMT are those of POSIX, the
// other way round.
func ofOffset(sign, hours string) string {
	n, err := strconv.Atoi(hours)
	switch {
	case err == nil && n == 0:
		return "UTC"
	case err == nil && sign == "+" && n <= 14:
		return fmt.Sprintf("Etc/GMT-%d (UTC+%d all year), or the zone of a city, like Europe/Berlin", n, n)
	case err == nil && sign == "-" && n <= 12:
		return fmt.Sprintf("Etc/GMT+%d (UTC-%d all year), or the zone of a city, like America/New_York", n, n)
	}
	return ""
}
