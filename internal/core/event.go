package core

// IsClosed reports whether the channel is closed, which means that its event has happened.
func IsClosed(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}
