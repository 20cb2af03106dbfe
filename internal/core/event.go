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

// TrySend sends a value if the channel has room, and drops it otherwise.
func TrySend[T any](to chan<- T, v T) {
	select {
	case to <- v:
	default:
	}
}
