// Package pages is the dashboard. It serves HTML below the same path as the HTTP API, on package
// client. Every page works without a script. Package shell has what the pages have in common.
//
// # How to add a page
//
//  1. A function that returns its shell.Page, as below, and its line in pages (pages.go). The folder is full: put the
//     function into the file of its subject, and what is long into a package below. An entry of the navigation is in
//     shell/view.go.
//
//  2. html/NAME.html, which defines "title" and "content". A template is executed with a *shell.View: .Data is what
//     Show returned; {{$.Link "jobs" .Job}} is a relative link; {{$.Time .Next}}, {{$.TimeIn .Next .Timezone}} and
//     {{$.Ago .Next}} are times in the zone of the user; {{$.Text .Error}} is foreign text; {{template "state" .State}}
//     is a state; {{template "field" ($.Form.Field "from" "From" "hint")}} is a field of a form. Put foreign text into
//     an element bdi or pre. html/parts has the templates that pages share.
//
//  3. A part of the page that changes by itself has an ID (letters, digits and hyphens) and an attribute data-live,
//     which lists when to refresh it, separated by blanks: "job:NAME": at an event of the job; "kind:failed": at an
//     event of this kind; "*": at any event; "every:10": every ten seconds. The script then requests the page again,
//     and replaces these parts. So Show must be cheap: while slots end, it is called every two seconds, once for all
//     browsers.
//
//  4. An order is a page too: Show says what the order will do; Do carries it out, and returns the path to go to. Read
//     fields with r.Form, which shows errors beside the fields. Show and Do must both read all their fields, because
//     unknown parameters are errors.
//
//  5. The page's text in testdata: a line in TestPagesOfTheFleetSayWhatIsWritten, or a test beside it, and
//     go test ./internal/web/pages -update. Its path in the lists of integration/browser/browser_test.go and of
//     web/bench_test.go, and a section of docs/dashboard.md.
//
// A page that only shows something is short:
//
//	func (s *Site) nodes() shell.Page {
//		return shell.Page{Path: "/nodes", Nav: "nodes", File: "nodes.html", Show: func(r *shell.Request) (any, error) {
//			return r.Client.Nodes(r.Context(), client.NodeFilter{})
//		}}
//	}
//
// # Decisions
//
//   - The content policy allows no inline script and no inline style. So charts are SVG with attributes and classes,
//     with a table below them.
//   - All links are relative: see package link. A page never knows below which path it is mounted.
//   - If the broker does not answer within two seconds, a page shows what it showed last, and since when. The script
//     and the header Refresh bring it up to date when the broker answers.
//   - Browsers get a stream of changes, not of events: all browsers of a process share one message every two seconds at
//     most, however many slots run. The first event after a quiet time waits only 200 ms.
package pages
