// Package integration holds what can only be seen from outside: the built binary,
// real servers and clusters, real processes, and what the engine really does.
//
// The problems that Cronce was made for are one test each:
//
//   - Several servers submit the same timer task to schedulers that share a store
//     which fails at unlock time, and one joins late:
//     TestTimersThatSeveralServersSubmitRunOnce.
//   - Four copies of a web process each start the scheduler:
//     TestWebProcessInFourCopiesRunsEachSlotOnce.
//   - A single scheduler is a single point of failure: TestFleetHasNoSinglePointOfFailure.
//   - A worker loses the registry, and comes back:
//     TestWorkerLosesTheRegistryForLessThanTheLease, ...ForMoreThanTheLease.
//   - Clocks of the fleet differ: TestClocksOfTheFleetDifferByTwoHours.
//   - A run is longer than its interval, or crashes with the lock:
//     TestRunLongerThanItsIntervalNeverOverlaps, TestLockOfACrashedRunFreesItself.
//   - Two applications have jobs of the same name:
//     TestNamespacesKeepSameNamedJobsOfTwoApplicationsApart.
//   - Main and standby, and work for all machines:
//     TestStandbyWorkerTakesOverAndHandsBack,
//     TestWorkIsSpreadOverAllMachinesAndGrowsWithOneMore.
//
// Tests that take long, most of them, are built with the tag "long", and run with
// "go tool task long". So are those of other packages.
package integration
