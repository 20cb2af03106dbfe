// Package standards is a module of its own: its tests hold what cronce writes and speaks against the programs and
// schemas of others, whose libraries nothing else needs.
//
//	alertbody  the alerts to chat services, against the schemas of what the services take
//	httpapi    the HTTP API, against its OpenAPI document, and the document against validators
//	jobschema  the schema of job files, against the files and the decoder
//	oidc       logins at an OIDC provider
package standards
