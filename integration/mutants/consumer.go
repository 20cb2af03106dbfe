package main

// consumerMutants break package consumer.
var consumerMutants = []mutant{
	{
		name:   "start-after-a-read",
		breaks: "a handler starts after a read, without a won write (invariant 3)",
		file:   "consumer/claim.go",
		old:    "		t.answer = answer{revision, err}\n",
		new: `		if t.state == claimed && t.decision.Action == core.Start {
			err = nil
		}
		t.answer = answer{revision, err}
`,
		test: "TestNoHandlerStartsWithoutAWonWrite",
	},
	{
		name:   "start-after-the-lease",
		breaks: "a handler starts although the lease ended while the claim was on its way (invariant 4)",
		file:   "consumer/attempt.go",
		old:    "	if !t.cfg.Node.Trusted() {\n		return t.end(silence)",
		new:    "	if false {\n		return t.end(silence)",
		test:   "TestNoHandlerStartsWithoutAWonWrite",
	},
	{
		name:   "unknown-claim-forgotten",
		breaks: "a claim without an answer is given up; it may have been stored, and then no worker runs the slot (invariant 8)",
		file:   "consumer/claim.go",
		old:    "	case errors.Is(err, job.ErrConflict), errors.Is(err, job.ErrUnknown): // the ledger says what became of it\n",
		new:    "	case errors.Is(err, job.ErrUnknown):\n		return t.end(later(tooMany))\n	case errors.Is(err, job.ErrConflict):\n",
		test:   "TestAnUnansweredClaimIsSettledBeforeItsMessageIsAnswered",
	},
	{
		name:   "completion-without-revision",
		breaks: "an outcome is written over any record, not at the revision of the claim (invariant 5)",
		file:   "consumer/claim.go",
		old:    "		t.state = recorded\n",
		new: `		t.state = recorded
		_, t.at, _ = t.cfg.Ledger.Read(t.ctx, t.rec.Slot)
`,
		test: "TestAWorkerThatLostItsClaimCannotCompleteAndSendsNothing",
	},
	{
		name:   "ack-before-the-record",
		breaks: "a message is acked before the outcome of its slot is on the broker's disk (invariant 6)",
		file:   "consumer/record.go",
		old:    "	// ErrUnknown ends with the context. Anything else, a full bucket say, may pass.\n",
		new:    "	if !errors.Is(err, job.ErrUnknown) {\n		return t.end(ack)\n	}\n",
		test:   "TestAckOnlyAfterTheRecordIsDurable",
	},
	{
		name:   "late-ack",
		breaks: "a worker that lost its claim acks the message of the new owner (invariant 6)",
		file:   "consumer/record.go",
		old:    "	return t.end(silence)\n",
		new:    "	return t.end(ack)\n",
		test:   "TestAWorkerThatLostItsClaimCannotCompleteAndSendsNothing",
	},
	{
		name:   "places-of-an-incarnation",
		breaks: "each incarnation of a process has its own limiter, whatever the previous one still runs",
		file:   "consumer/consumer.go",
		old:    "cfg.Table.limiter(cfg.Queue, cfg.Concurrency)",
		new:    "newLimiter(cfg.Concurrency)",
		test:   "TestConcurrencyIsOfTheProcessOverLostLeases",
	},
	{
		name:   "deadline-while-it-waits",
		breaks: "a slot with a deadline is claimed ahead, and starts whenever the limiter admits it",
		file:   "consumer/claim.go",
		old:    " && (e == nil || e.Job.Deadline == 0)",
		new:    " && (e == nil || true)",
		test:   "TestASlotWithADeadlineIsNotClaimedAhead",
	},
	{
		name:   "dropped-job-forgotten",
		breaks: "a slot whose job was dropped between its claim and its start is left claimed",
		file:   "consumer/attempt.go",
		old:    "	if handler == nil || ",
		new:    "	if handler == nil {\n		return t.end(silence)\n	}\n	if ",
		test:   "TestASlotWhoseJobIsDroppedBetweenItsClaimAndItsStartIsReleasedAtOnce",
	},
	{
		name:   "given-back-behind-newer",
		breaks: "a worker that is not ready releases slots, and newer ones start before them",
		file:   "consumer/decide.go",
		old:    "		return t.end(later(0)) // at once",
		new:    "		return t.end(later(shortest)) // at once",
		test:   "TestAWorkerThatIsNotReadyGivesSlotsBackInOrder",
	},
	{
		name:   "context-by-timers-alone",
		breaks: "a handler's context ends when a goroutine ends it, not when its lease ends (invariant 4)",
		file:   "consumer/attempt.go",
		old:    "	if !c.trusted() {\n",
		new:    "	if false {\n",
		test:   "TestAHandlersContextEndsByTheClock",
	},
	{
		name:   "outcome-ends-with-the-lease",
		breaks: "the success of a handler that returned in time is thrown away when the broker is away for a lease",
		file:   "consumer/attempt.go",
		old:    "	if inTime {\n",
		new:    "	if a.finish {\n",
		test:   "TestASuccessIsRecordedAlthoughTheLeaseEndsBeforeItIsAnswered",
	},
	{
		name:   "lost-claim-given-up",
		breaks: "a claim whose record vanished from the ledger is taken for another worker's",
		file:   "consumer/record.go",
		old:    "		case !outlasts || stands == t.at:\n",
		new:    "		case !outlasts || true:\n",
		test:   "TestAClaimThatTheLedgerLostIsWrittenAgain",
	},
	{
		name:   "panic-is-not-the-slots",
		breaks: "a panic in the handling of one slot ends the process",
		file:   "consumer/task.go",
		old:    "		t.fail(p)\n",
		new:    "		panic(p)\n",
		test:   "TestAPanicInTheWorkersOwnCodeIsThatSlotsFailure",
	},
	{
		name:   "lock-freed-by-delete",
		breaks: "a lock is released whichever slot holds it now, as a delete or a plain put does",
		file:   "consumer/locks.go",
		old:    "	revision, err := l.Write(ctx, next, seen.revision)\n",
		new: `	if len(next.Holders) == 0 {
		_, seen.revision, _ = l.Read(ctx, seen.Job)
	}
	revision, err := l.Write(ctx, next, seen.revision)
`,
		test: "TestLeavingALockLeavesOtherSlotsInIt",
	},
	{
		name:   "lock-left-without-an-outcome",
		breaks: "a slot that waits for its retry leaves its lock",
		file:   "consumer/task.go",
		old:    "if t.final && t.lock.entered {",
		new:    "if t.lock.entered {",
		test:   "TestASlotThatIsToBeRetriedKeepsItsPlace",
	},
	{
		name:   "ack-before-what-follows",
		breaks: "a slot is acked although what follows from it is not on the broker",
		file:   "consumer/follow.go",
		old:    "return t.postpone(fmt.Errorf(\"what follows",
		new:    "_ = t.postpone(fmt.Errorf(\"what follows",
		test:   "TestNoAckBeforeWhatFollowsIsOnTheBroker",
	},
	{
		name:   "nothing-follows-again",
		breaks: "what follows from an outcome never happens if a crash came first",
		file:   "consumer/decide.go",
		old:    "		t.rec, t.answer.revision, t.state = *t.view.Record, t.view.Revision, following\n",
		new:    "		return t.end(ack)\n",
		test:   "TestWhatFollowsIsSentWhenTheMessageComesAgain",
	},
	{
		name:   "look-before-the-write",
		breaks: "of two slots that succeed at once neither finds the other's record",
		file:   "consumer/follow.go",
		old:    "before = append(before, found...)",
		new:    "_ = found",
		test:   "TestOfTwoThatSucceedAtOnceAtLeastOnePublishes",
	},
	{
		name:   "unread-message-logged-for-ever",
		breaks: "a message that no program can read is logged at every delivery",
		file:   "consumer/task.go",
		old:    "if t.d.Count <= 2 {",
		new:    "if t.d.Count > 0 {",
		test:   "TestAMessageThatCannotBeReadIsLeftForANewerNodeUpToTheHorizon",
	},
}
