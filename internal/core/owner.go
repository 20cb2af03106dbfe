package core

// Who brought a job into the registry, as Definition.Owner has it. Files and code
// do not overrule an operator.
const (
	OwnerFile     = "file"
	OwnerCode     = "code"
	OwnerOperator = "operator"

	// OwnerReleased was an operator's: the next file or code that says something
	// else of the job has it.
	OwnerReleased = "released"
)

// ReleaseHold computes what replaces e so that files and code may change its job
// again, in the name of node (who writes it). The content stays as it is, until a
// node that has another starts. It is false when no operator holds the job:
// nothing is to be written. Like all edits it is to be written at e.Revision,
// with a nonce.
func ReleaseHold(e Entry, node string) (Definition, bool) {
	d := e.revised(node)
	d.Owner = OwnerReleased
	return d, e.Owner == OwnerOperator
}
