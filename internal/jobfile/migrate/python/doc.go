// Package python reads the literals of a Python program: texts, numbers, lists, dicts, and calls
// of names with such arguments. It runs nothing, so it can read an untrusted file.
//
// Every other expression becomes a value of the kind [Opaque] with its line and its text, and
// reading goes on behind it. So what is not understood can be reported where it stands, and does
// not hide what comes after it.
package python
