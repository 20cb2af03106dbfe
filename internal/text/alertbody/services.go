package alertbody

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/cronce-io/cronce/internal/codec"
)

// Services returns the names of the known services.
func Services() []string { return []string{"slack", "teams", "discord", "pagerduty", "ntfy"} }

// IsService reports whether the name is one of Services.
func IsService(name string) bool { return slices.Contains(Services(), name) }

// Service returns the body of the alert for a service. topic is that of ntfy.
func Service(name string, d Data, topic string) ([]byte, error) {
	d = d.Clean()
	var body any
	switch name {
	case "slack":
		body = slack(d)
	case "teams":
		body = teams(d)
	case "discord":
		body = discord(d)
	case "pagerduty":
		body = pagerDuty(d)
	case "ntfy":
		body = ntfy(d, topic)
	default:
		return nil, fmt.Errorf("unknown format %q: want %s", name, strings.Join(Services(), ", "))
	}
	return codec.Marshal(body)
}

type object = map[string]any

// Slack's limits: a header has 150 characters, the text of a section 3000
// (https://docs.slack.dev/reference/block-kit/blocks), and all blocks together about 13,000.
const (
	slackHeader  = 150
	slackSection = 3000
	slackError   = 1500
)

// slack returns the body of an incoming webhook. "<!channel>" and "<@U1>" are mentions, and
// the three characters that begin markup are escaped as
// https://docs.slack.dev/messaging/formatting-message-text says. Names without brackets are
// not mentions, unless the sender asks for link_names.
func slack(d Data) any {
	plain := func(s string, limit int) object {
		return object{"type": "plain_text", "text": slackEscape.Replace(head(s, limit, slackWidth)), "emoji": false}
	}
	code := func(title, text string) object {
		return object{"type": "section", "text": object{"type": "mrkdwn", "text": "*" + title + "*\n```" + slackEscape.Replace(text) + "```"}}
	}
	const around = len("*Output*\n``````")
	blocks := []object{
		{"type": "header", "text": plain(mark(d)+d.Title, slackHeader)},
		{"type": "section", "text": plain(strings.Join(codec.Map(d.facts(), fact.String), "\n"), slackSection)},
	}
	if d.Error != "" {
		blocks = append(blocks, code("Error", head(unfence(d.Error), slackError, slackWidth)))
	}
	if d.Output != "" {
		blocks = append(blocks, code("Output", tail(unfence(d.Output), slackSection-around, slackWidth)))
	}
	return object{"text": slackEscape.Replace(head(d.Title+oneLine(unfence(d.Error)), slackSection, slackWidth)), "blocks": blocks}
}

var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func slackWidth(r rune) int {
	switch r {
	case '&':
		return len("&amp;")
	case '<', '>':
		return len("&lt;")
	}
	return utf16(r)
}

// unfence breaks each "```", which would end a block of code, with an invisible character.
func unfence(s string) string { return strings.ReplaceAll(s, "```", "`\u200b`\u200b`") }

// oneLine returns the first line of an error, for the end of a title.
func oneLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if line == "" {
		return ""
	}
	return ": " + line
}

// mark is a symbol before a title, which shows at a glance what kind of news it is.
func mark(d Data) string { return byNews(d, "✅ ", "⚠️ ", "🔴 ") }

// Teams takes messages of at most 28 KB
// (https://learn.microsoft.com/en-us/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using).
// In JSON, a one-byte character of clean text takes at most two bytes.
const (
	teamsError  = 2000
	teamsOutput = 8000
)

// teams returns the body for a webhook of Teams' workflows: an adaptive card. A TextRun is
// shown as it is: it has no markup, and nothing in it is a mention, since the card has no
// entities.
func teams(d Data) any {
	text := func(run object) object { return object{"type": "RichTextBlock", "inlines": []object{run}} }
	code := func(s string) object {
		return text(object{"type": "TextRun", "text": s, "fontType": "Monospace"})
	}
	bold := func(s string) object { return text(object{"type": "TextRun", "text": s, "weight": "Bolder"}) }
	color := byNews(d, "Good", "Attention", "Attention")
	body := []object{text(object{"type": "TextRun", "text": mark(d) + d.Title, "size": "Large", "weight": "Bolder", "color": color})}
	for _, f := range d.facts() {
		body = append(body, text(object{"type": "TextRun", "text": f.String()}))
	}
	if d.Error != "" {
		body = append(body, bold("Error"), code(head(d.Error, teamsError, bytes)))
	}
	if d.Output != "" {
		body = append(body, bold("Output"), code(tail(d.Output, teamsOutput, bytes)))
	}
	return object{"type": "message", "attachments": []object{{
		"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil,
		"content": object{
			"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4", "body": body,
		},
	}}}
}

// Discord's limits: content has 2000 characters
// (https://discord.com/developers/docs/resources/webhook#execute-webhook); the description of
// an embed 4096, the value of a field 1024, and all texts of the embeds together 6000
// (https://discord.com/developers/docs/resources/message#embed-object-embed-limits).
const (
	discordContent     = 2000
	discordDescription = 4096
	discordError       = 1500
	discordOutput      = 2000
	discordField       = 300
)

// discord returns the body of a webhook. allowed_mentions with an empty list means that
// nothing in the message notifies anyone, not even "@everyone".
func discord(d Data) any {
	fence := func(title, text string) string { return "**" + title + "**\n```\n" + text + "\n```\n" }
	description := ""
	if d.Error != "" {
		description += fence("Error", head(unfence(d.Error), discordError, utf16))
	}
	if d.Output != "" {
		description += fence("Output", tail(unfence(d.Output), discordOutput, utf16))
	}
	fields := []object{}
	for _, f := range d.facts() {
		if f.value != "" { // Discord refuses a field without a value
			fields = append(fields, object{"name": f.name, "value": head(unfence(f.value), discordField, utf16)})
		}
	}
	embed := object{"color": byNews(d, 0x2da44e, 0xd4a72c, 0xd72b3f), "fields": fields}
	if description != "" {
		embed["description"] = head(description, discordDescription, utf16)
	}
	if !d.Time.IsZero() {
		embed["timestamp"] = d.Time.UTC().Format(time.RFC3339)
	}
	return object{
		"content": head(mark(d)+d.Title, discordContent, utf16), "embeds": []object{embed}, "allowed_mentions": object{"parse": []string{}},
	}
}

// PagerDuty's limits: a summary has 1024 characters, a dedup_key 255, and an event 512 KB
// (https://developer.pagerduty.com/docs/send-alert-event).
const (
	pagerDutySummary = 1024
	pagerDutyDedup   = 255
)

// pagerDuty returns an event of the Events API v2. All events of a job have the same key. So a
// recovery resolves the incident that a failure has triggered, and another failure before that
// adds to the incident.
func pagerDuty(d Data) any {
	details := object{}
	for _, f := range d.facts() {
		details[strings.ToLower(strings.ReplaceAll(f.name, " ", "_"))] = f.value
	}
	if d.Error != "" {
		details["error"] = d.Error
	}
	if d.Output != "" {
		details["output"] = d.Output
	}
	payload := object{
		"summary": head(d.Title+oneLine(d.Error), pagerDutySummary, utf16), "source": cmp.Or(d.Node, "cronce"), "severity": byNews(d, "info", "warning", "error"),
		"component": d.Job, "group": d.Namespace, "class": d.Alert, "custom_details": details,
	}
	if !d.Time.IsZero() {
		payload["timestamp"] = d.Time.UTC().Format(time.RFC3339)
	}
	return object{
		"routing_key": d.Key, "event_action": byNews(d, "resolve", "trigger", "trigger"), "dedup_key": head(d.key(), pagerDutyDedup, utf16), "client": "Cronce", "payload": payload,
	}
}

// NtfyTopic splits the URL of a topic into that of its server and the topic's name. Its errors
// do not quote the URL: the name of a topic is enough to read it.
func NtfyTopic(url string) (server, topic string, err error) {
	url, _, _ = strings.Cut(url, "?")
	url = strings.TrimSuffix(url, "/")
	at := strings.LastIndexByte(url, '/')
	server, topic = url[:at+1], url[at+1:]
	if strings.HasSuffix(server, "://") || !ntfyTopic.MatchString(topic) {
		return "", "", errors.New("want the URL of a topic of ntfy, like https://ntfy.sh/TOPIC")
	}
	return server, topic, nil
}

var ntfyTopic = regexp.MustCompile(`^[-_A-Za-z0-9]{1,64}$`)

// ntfy turns a message of more than 4096 bytes into an attached file
// (https://docs.ntfy.sh/config/#config-options, message-size-limit).
const (
	ntfyMessage = 4096
	ntfyTitle   = 250
	ntfyError   = 1500
)

// ntfy returns a message as JSON, which goes to the root of the server
// (https://docs.ntfy.sh/publish/#publish-as-json). It is plain text.
func ntfy(d Data, topic string) any {
	tag, priority := byNews(d, "white_check_mark", "warning", "rotating_light"), byNews(d, 3, 4, 4)
	lines := []string{}
	if d.Error != "" {
		lines = append(lines, head(d.Error, ntfyError, bytes))
	}
	lines = append(lines, codec.Map(d.facts(), fact.String)...)
	message := head(strings.Join(lines, "\n"), ntfyMessage, bytes)
	if room := ntfyMessage - len(message) - len("\n\n"); d.Output != "" && room > 100 {
		message += "\n\n" + tail(d.Output, room, bytes)
	}
	return object{"topic": topic, "title": head(d.Title, ntfyTitle, bytes), "message": message, "priority": priority, "tags": []string{tag}}
}
