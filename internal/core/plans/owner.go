package plans

// The values of Definition.Owner: the origin of the last edit of a job. Files and code do not
// replace an edit of an operator.
const (
	OwnerFile     = "file"
	OwnerCode     = "code"
	OwnerOperator = "operator"

	// OwnerReleased: an operator has edited the job and released it. The next file or code
	// with a different job replaces the edit.
	OwnerReleased = "released"
)

// ReleaseHold returns the definition that replaces e so that files and code may change its job
// again. The job stays as it is until a node with a different one starts. It returns false if no
// operator holds the job. The caller sets a nonce, and writes at e.Revision.
func ReleaseHold(e Entry, node string) (Definition, bool) {
	d := e.revised(node)
	d.Owner = OwnerReleased
	return d, e.Owner == OwnerOperator
}
