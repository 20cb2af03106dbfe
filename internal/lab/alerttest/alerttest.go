// Package alerttest has alerts for tests, and texts that try to break out of them.
package alerttest

import (
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/text/alertbody"
)

var at = time.Date(2026, 11, 21, 7, 0, 0, 0, time.UTC)

// Data returns an alert of a kind.
func Data(kind string) alertbody.Data {
	return alertbody.Data{
		Alert: kind, Namespace: "cronce", Job: "report", Slot: "report:2026-11-21T07:00:00Z", Time: at.Add(4 * time.Second), Instant: at,
		Attempt: 3, Fence: 7, Node: "web1-711-0kq1-x2", Error: "exit status 1", Output: "line 1\nline 2", Key: strings.Repeat("k", 32),
	}
}

// Kinds are the kinds of alerts.
var Kinds = []string{alertbody.Failed, alertbody.Expired, alertbody.Missed, alertbody.Late, alertbody.Recovered, alertbody.Succeeded}

// Hostile are texts that break out of quotes, exceed limits, deceive, or call people.
var Hostile = map[string]string{
	"quotes":        `"}],"text":"pwned" \" \\ ' </script> {{.Key}} ${x} $(id)`,
	"four megabyte": strings.Repeat("0123456789abcdef", 4<<20/16),
	"wide":          strings.Repeat("\U0001f525", 20_000),
	"escapes":       strings.Repeat("&<>\"\\\n", 5_000),
	"terminal":      "\x1b[31mred\x1b[0m\x00\x07\r\nnext",
	"right to left": "abc\u202etxt.exe\u202c \u2066x\u2069 \u061c",
	"invalid UTF-8": "a\xff\xfe\xc3(b",
	"separators":    "a\u2028b\u2029c\ufeffd",
	"mentions":      "@everyone @here @channel <!channel> <!here> <!everyone> <@U123> <#C1> <@&42> <@42> <at>all</at> [x](javascript:alert(1)) <https://evil|ok>",
	"fences":        "```\nout of the block *bold*\n```\n````",
	"blank":         " \n\t\r\n",
	"nothing":       "",
}

// With returns an alert of a kind that has the text wherever a user's text can be.
func With(kind, text string) alertbody.Data {
	d := Data(kind)
	d.Error, d.Output, d.Node = text, text, "web1"
	d.Slot, d.Since = "report:@"+text[:min(len(text), 128)], "report:@"+text[:min(len(text), 128)]
	return d
}
