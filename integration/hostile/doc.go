// Package hostile writes arbitrary data to the broker, as any login with write access can, and tests
// the code that reads it: the sweep, verify, doctor, and the commands that explain, show and list.
package hostile
