// Package unitfile reads the files of systemd units.
package unitfile

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// File is the file of a unit, or a drop-in for one.
type File struct {
	// Path is the path of the file. Method Unit derives the unit's name from it.
	Path string

	// File is the name of the file in notes. Empty: there is only one file. Line is the number of
	// the line before the text.
	File string
	Line int

	Text string
}

var catHeader = regexp.MustCompile(`^# (/\S+\.(?:service|socket|device|mount|automount|swap|target|path|timer|slice|scope|conf))$`)

// Split splits the output of "systemctl cat", in which a line with the path is above each
// file. A text without such lines is one file.
func Split(file File) (all []File) {
	rest := File{Path: file.Path, File: file.File}
	for i, line := range strings.SplitAfter(file.Text, "\n") {
		if m := catHeader.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			if strings.TrimSpace(rest.Text) != "" {
				all = append(all, rest)
			}
			rest = File{Path: m[1], File: file.File, Line: file.Line + i + 1}
			continue
		}
		rest.Text += line
	}
	if strings.TrimSpace(rest.Text) != "" {
		all = append(all, rest)
	}
	return all
}

// IsDropIn reports whether the file is a drop-in: a file NAME.conf in a folder UNIT.d.
func (f File) IsDropIn() bool {
	return strings.HasSuffix(f.Path, ".conf") && strings.HasSuffix(path.Dir(f.Path), ".d")
}

// Unit returns the name of the file's unit. For a drop-in, that is the name of its folder.
func (f File) Unit() string {
	if f.IsDropIn() {
		return strings.TrimSuffix(path.Base(path.Dir(f.Path)), ".d")
	}
	return path.Base(f.Path)
}

// Setting is a line of a unit.
type Setting struct {
	Section, Key, Value string
	File                string // the file's name in notes
	Line                int
}

// Unit has the settings of a unit, in their order. For All and Last, an empty value removes the
// earlier settings of the same key.
type Unit struct {
	Name     string
	HasFile  bool // not only drop-ins
	Settings []Setting
}

// starts are the settings of a timer that say when it elapses. In systemd they are one list.
var starts = []string{"OnActiveSec", "OnBootSec", "OnStartupSec", "OnUnitActiveSec", "OnUnitInactiveSec", "OnCalendar"}

// single are the settings with one value, of which the last one counts. For each there is the name
// that it has besides its own.
var single = map[string]string{
	"Timer.Persistent": "", "Timer.RandomizedDelaySec": "", "Timer.FixedRandomDelay": "", "Timer.AccuracySec": "",
	"Timer.WakeSystem": "", "Timer.RemainAfterElapse": "", "Service.Type": "", "Service.Restart": "", "Service.RuntimeMaxSec": "",
	"Service.TimeoutStartSec": "Service.TimeoutSec", "Service.TimeoutSec": "Service.TimeoutStartSec",
}

// Settle removes the settings that later ones replace, as those of a drop-in do. Call it when all files
// of the unit are read.
func (u *Unit) Settle() {
	var all []Setting
	for _, s := range u.Settings {
		name := s.Section + "." + s.Key
		other, one := single[name]
		reset := s.Value == "" && s.Section == "Timer" && slices.Contains(starts, s.Key)
		all = slices.DeleteFunc(all, func(before Setting) bool {
			known := before.Section + "." + before.Key
			return one && (known == name || known == other) || reset && before.Section == s.Section && slices.Contains(starts, before.Key)
		})
		all = append(all, s)
	}
	u.Settings = all
}

// Stem returns the name of the unit without its type.
func (u *Unit) Stem() string { return strings.TrimSuffix(u.Name, path.Ext(u.Name)) }

var specifier = regexp.MustCompile(`%.`)

// Expand replaces the specifiers in text that depend only on the unit's name, and reports the others.
// See systemd.unit(5), "SPECIFIERS".
func (u *Unit) Expand(text string, unknown func(string)) string {
	prefix, instance, _ := strings.Cut(u.Stem(), "@")
	last := prefix[strings.LastIndex(prefix, "-")+1:]
	known := map[string]string{
		"%%": "%", "%n": u.Name, "%N": u.Stem(),
		"%p": prefix, "%P": unescape(prefix), "%j": last, "%J": unescape(last), "%i": instance, "%I": unescape(instance),
	}
	return specifier.ReplaceAllStringFunc(text, func(s string) string {
		if value, ok := known[s]; ok {
			return value
		}
		unknown(s)
		return s
	})
}

var escaped = regexp.MustCompile(`-|\\x[0-9a-fA-F]{2}`)

// unescape undoes what systemd-escape does to a part of a unit's name.
func unescape(name string) string {
	return escaped.ReplaceAllStringFunc(name, func(s string) string {
		if s == "-" {
			return "/"
		}
		code, _ := strconv.ParseUint(s[2:], 16, 8) // the expression matches only such digits
		return string([]byte{byte(code)})
	})
}

// All returns the settings of a key.
func (u *Unit) All(section, key string) (some []Setting) {
	for _, s := range u.Settings {
		if s.Section != section || s.Key != key {
			continue
		}
		if s.Value == "" {
			some = nil
			continue
		}
		some = append(some, s)
	}
	return some
}

// Last returns the last setting of a key, or false if there is none.
func (u *Unit) Last(section, key string) (Setting, bool) {
	some := u.All(section, key)
	if len(some) == 0 {
		return Setting{}, false
	}
	return some[len(some)-1], true
}

// IsTrue reports whether a value is one of systemd's words for true.
func IsTrue(value string) bool {
	switch strings.ToLower(value) {
	case "1", "yes", "y", "true", "t", "on":
		return true
	}
	return false
}

// Read adds the settings of a file of the unit. It calls wrong with each line that is not a setting.
func (u *Unit) Read(f File, wrong func(line int, text string)) {
	section, held, heldAt := "", "", 0
	for i, line := range strings.Split(f.Text, "\n") {
		at := f.Line + i + 1
		line = strings.TrimSpace(line)
		if line != "" && (line[0] == '#' || line[0] == ';') {
			continue // also between the lines of a setting
		}
		if held != "" {
			line, at, held = held+line, heldAt, ""
		}
		if before, more := strings.CutSuffix(line, `\`); more {
			held, heldAt = before+" ", at
			continue
		}
		key, value, isSetting := strings.Cut(line, "=")
		switch {
		case line == "":
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = line[1 : len(line)-1]
		case !isSetting || section == "":
			wrong(at, line)
		default:
			u.Settings = append(u.Settings, Setting{section, strings.TrimSpace(key), strings.TrimSpace(value), f.File, at})
		}
	}
	if held != "" {
		wrong(heldAt, held)
	}
}

// Words splits a value as systemd does: at white space, with quotes and escapes. ok is false if a
// quote is not closed, or an escape is not known.
func Words(text string) (all []string, ok bool) {
	var b strings.Builder
	quote, inside := byte(0), false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			known := map[byte]string{'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v", '\\': `\`, '"': `"`, '\'': "'", 's': " "}
			value, is := known[text[i]]
			if !is {
				return nil, false
			}
			b.WriteString(value)
			inside = true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == '"' || c == '\'':
			quote, inside = c, true
		case c == ' ' || c == '\t':
			if inside {
				all = append(all, b.String())
			}
			b.Reset()
			inside = false
		default:
			b.WriteByte(c)
			inside = true
		}
	}
	if inside {
		all = append(all, b.String())
	}
	return all, quote == 0
}
