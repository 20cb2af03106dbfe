// Package hostile feeds what anybody may have written to the broker to all that reads
// it: the sweep, verify, doctor, and the commands that explain, show and list.
package hostile
