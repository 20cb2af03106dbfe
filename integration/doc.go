// Package integration tests what can only be seen from outside: the built binary with real
// processes, servers and clusters, and what nats-server really does.
//
// Each of the problems for which Cronce was made has a test:
//
//   - Several servers submit the same timer task to schedulers that share a store. The store fails
//     when the finished task is to be unlocked, and another scheduler joins late:
//     TestTimersThatSeveralServersSubmitRunOnce.
//   - Four copies of a web process each start the scheduler:
//     TestWebProcessInFourCopiesRunsEachSlotOnce.
//   - A single scheduler is a single point of failure: TestFleetHasNoSinglePointOfFailure.
//   - A worker loses its connection to the registry, and reconnects:
//     TestWorkerKeepsItsSlotOverASilenceShorterThanItsLease,
//     TestWorkerIsFencedOverASilenceLongerThanItsLease.
//   - The clocks of the fleet differ: TestClocksOfTheFleetDifferByTwoHours.
//   - A run takes longer than its interval, or crashes while it holds the lock:
//     TestRunLongerThanItsIntervalNeverOverlaps, TestLockOfACrashedRunFreesItself.
//   - Two applications have jobs of the same name:
//     TestNamespacesKeepSameNamedJobsOfTwoApplicationsApart.
//   - A standby takes over from a main worker: TestStandbyWorkerTakesOverAndHandsBack.
//   - All machines share the work: TestWorkIsSpreadOverAllMachinesAndGrowsWithOneMore.
//
// Most of the tests take long. These have the build tag "long", and ".ci/task long" runs them,
// with the long tests of other packages.
package integration
