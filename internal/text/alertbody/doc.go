// Package alertbody writes the bodies of alerts: those of known services (Service), and
// those of users' templates (Template).
//
// # Foreign text
//
// The error and the output of a job may hold anything. [Data.Clean] removes invalid UTF-8,
// control characters, and marks that change the direction of text. The bodies of services are
// built as values and then encoded, so no text can end a string. Text is escaped for the
// service's markup, so that it mentions no person and no channel. Each text is cut to the
// limit of its service: a service refuses a whole message for one text that is too long.
//
// # Templates
//
// A template comes from the registry, which many logins may write, and runs on every node.
// So it is bounded before it runs: it has no loops and no nested templates, hence its time
// grows with its size, which is limited too. A function that could make a text much longer bounds
// its result, and the result of the whole template is limited.
//
// The package is pure: it has no clock, no broker and no goroutines.
package alertbody
