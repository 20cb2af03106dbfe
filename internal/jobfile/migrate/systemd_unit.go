package migrate

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// UnitFile is a unit of systemd, or a drop-in of one.
type UnitFile struct {
	// Path is the path of the file. Its base is the unit's name.
	Path string

	// File is the name of the file in notes. Empty: there is only one file. Line is the number of
	// the line before the text.
	File string
	Line int

	Text string
}

var catHeader = regexp.MustCompile(`^# (/\S+\.(?:timer|service|conf))$`)

// SplitUnits splits the output of "systemctl cat", in which a line with the path is above each
// file. A text without such lines is one file.
func SplitUnits(file UnitFile) (all []UnitFile) {
	rest := UnitFile{Path: file.Path, File: file.File}
	for i, line := range strings.SplitAfter(file.Text, "\n") {
		if m := catHeader.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			if strings.TrimSpace(rest.Text) != "" {
				all = append(all, rest)
			}
			rest = UnitFile{Path: m[1], File: file.File, Line: file.Line + i + 1}
			continue
		}
		rest.Text += line
	}
	if strings.TrimSpace(rest.Text) != "" {
		all = append(all, rest)
	}
	return all
}

// unit returns the name of the file's unit. For a drop-in, that is the name of its folder.
func (f UnitFile) unit() string {
	base := path.Base(f.Path)
	if dir := path.Base(path.Dir(f.Path)); strings.HasSuffix(base, ".conf") && strings.HasSuffix(dir, ".d") {
		return strings.TrimSuffix(dir, ".d")
	}
	return base
}

// unitSetting is a line of a unit.
type unitSetting struct {
	section, key, value string
	file                string
	line                int
}

// unit has the settings of a unit, in their order. An empty value removes the earlier settings of
// the same key.
type unit struct {
	name     string
	settings []unitSetting
}

// stem returns the name of the unit without its type.
func (u *unit) stem() string { return strings.TrimSuffix(u.name, path.Ext(u.name)) }

var specifier = regexp.MustCompile(`%.`)

// expand replaces the specifiers in text that depend only on the unit's name, and reports the others.
// See systemd.unit(5), "SPECIFIERS".
func (u *unit) expand(text string, unknown func(string)) string {
	prefix, instance, _ := strings.Cut(u.stem(), "@")
	last := prefix[strings.LastIndex(prefix, "-")+1:]
	known := map[string]string{
		"%%": "%", "%n": u.name, "%N": u.stem(),
		"%p": prefix, "%P": unescapeUnit(prefix), "%j": last, "%J": unescapeUnit(last), "%i": instance, "%I": unescapeUnit(instance),
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

// unescapeUnit undoes what systemd-escape does to a part of a unit's name.
func unescapeUnit(name string) string {
	return escaped.ReplaceAllStringFunc(name, func(s string) string {
		if s == "-" {
			return "/"
		}
		code, _ := strconv.ParseUint(s[2:], 16, 8) // the expression matches only such digits
		return string([]byte{byte(code)})
	})
}

// all returns the settings of a key.
func (u *unit) all(section, key string) (some []unitSetting) {
	for _, s := range u.settings {
		if s.section != section || s.key != key {
			continue
		}
		if s.value == "" {
			some = nil
			continue
		}
		some = append(some, s)
	}
	return some
}

// last returns the last setting of a key, or false if there is none.
func (u *unit) last(section, key string) (unitSetting, bool) {
	some := u.all(section, key)
	if len(some) == 0 {
		return unitSetting{}, false
	}
	return some[len(some)-1], true
}

// isTrue reports whether a value is one of systemd's words for true.
func isTrue(value string) bool {
	switch strings.ToLower(value) {
	case "1", "yes", "y", "true", "t", "on":
		return true
	}
	return false
}

// readUnit adds the settings of a file to its unit. It calls wrong with each line that is not a
// setting.
func readUnit(u *unit, f UnitFile, wrong func(line int, text string)) {
	section, held, heldAt := "", "", 0
	for i, line := range strings.Split(strings.TrimPrefix(f.Text, "\ufeff"), "\n") {
		at := f.Line + i + 1
		line = strings.TrimSpace(strings.TrimRight(line, "\r"))
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
			u.settings = append(u.settings, unitSetting{section, strings.TrimSpace(key), strings.TrimSpace(value), f.File, at})
		}
	}
	if held != "" {
		wrong(heldAt, held)
	}
}

// words splits a value as systemd does: at white space, with quotes and escapes. ok is false if a
// quote is not closed, or an escape is not known.
func words(text string) (all []string, ok bool) {
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
