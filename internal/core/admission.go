package core

import (
	"github.com/cronce-io/cronce/job"
)

// AdmissionKind is a lock's verdict on an entrant.
type AdmissionKind int

const (
	// AdmissionUnasked: the worker has not asked the lock.
	AdmissionUnasked AdmissionKind = iota
	// AdmissionGranted: the slot holds a place, as soon as the new lock is stored.
	AdmissionGranted
	// AdmissionQueued: the slot waits in the lock.
	AdmissionQueued
	// AdmissionCrowded: the lock's list of waiting slots is full. The slot must retry.
	AdmissionCrowded
	// AdmissionSkipped: the job's policy skips the slot because of Admission.InWay.
	AdmissionSkipped
	// AdmissionReplaced: by the job's policy, the newer slot Admission.InWay replaces the slot.
	AdmissionReplaced
)

// Admission is a lock's verdict with its details.
type Admission struct {
	Kind AdmissionKind

	// InWay is the slot because of which this one is skipped or replaced. It is set only for
	// AdmissionSkipped and AdmissionReplaced.
	InWay job.Slot

	// Ahead is the number of waiting slots whose turn comes before this slot's.
	Ahead int

	// Displaces is the holder that this slot replaces, or the zero slot.
	Displaces job.Slot
}
