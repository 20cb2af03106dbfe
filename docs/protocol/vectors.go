// Package protocol holds the vectors of docs/protocol.md, and the list of what tests each
// of its MUSTs, for the programs that hold other code against them.
package protocol

import "embed"

// Files are the vectors, one file for each kind of question, and musts.json.
//
//go:embed *.json
var Files embed.FS
