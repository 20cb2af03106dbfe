// Package auth decides which users may use the HTTP API and the pages, and names the user of each
// request. What a user may do is not decided here: every user acts with the NATS login of
// the process, and the broker permits or refuses.
//
//   - auth.go: Config, the handler that Guard wraps around the pages, and the names that this
//     server serves.
//   - file.go: users from a file of tokens or passwords, or from a proxy.
//   - oidc (a package, so that only the binary links it): users of an OpenID provider.
//   - login.go: the cookie of a browser, and the page that sets it.
//
// # Decisions
//
//   - On a loopback address no login is needed, as with the embedded NATS server. On any other
//     address a process does not start without a way to log in, or Insecure.
//   - A session is a signed cookie, and the server stores nothing: any replica with the same
//     files accepts it. It ends after twelve hours, or when the user's token, or the secret of the
//     OpenID client, is replaced.
//   - The cookie is SameSite=Strict. When a person follows a link from another site, the browser
//     does not send it. The server then answers with a page that reloads itself.
//   - Locations are relative, so that the pages work below any path of a proxy.
//   - Host names are checked. Otherwise an attacker's page could point its own host name at this
//     server's address (DNS rebinding), and read what the server answers without a login.
//     Requests to an IP address need no check, because DNS rebinding needs a name.
package auth
