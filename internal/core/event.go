package core

// IsClosed reports whether the channel of an event is closed: the event has happened.
func IsClosed(event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	default:
		return false
	}
}
