// Package python reads the literals of a Python program: strings, numbers, lists, dicts, and calls
// of names with such arguments. It runs nothing, so it can read an untrusted file.
//
// Each other expression becomes a value of the kind [Opaque] with its line and its source, and
// reading goes on after it. So the caller can report it with its line, and still gets what follows.
package python
