package main

// consumerMutants break package consumer.
var consumerMutants = []mutant{
	{
		name:   "start-after-a-read",
		breaks: "a handler starts after a read, without a won write (invariant 3)",
		file:   "consumer/task.go",
		old:    "	t.cfg.Ledger.Send(ctx, t.rec, t.view.Revision, func(revision uint64, err error) {\n",
		new: `	t.cfg.Ledger.Send(ctx, t.rec, t.view.Revision, func(revision uint64, err error) {
		if action == core.Start {
			err = nil
		}
`,
		test: "TestNoHandlerStartsWithoutAWonWrite",
	},
	{
		name:   "start-after-the-lease",
		breaks: "a handler starts although the lease ended while the claim was on its way (invariant 4)",
		file:   "consumer/attempt.go",
		old:    "	if !c.cfg.Node.Trusted() {\n		return silent()",
		new:    "	if false {\n		return silent()",
		test:   "TestNoHandlerStartsWithoutAWonWrite",
	},
	{
		name:   "unknown-claim-forgotten",
		breaks: "a claim without an answer is given up; it may have been stored, and then no worker runs the slot (invariant 8)",
		file:   "consumer/task.go",
		old:    "	case errors.Is(err, job.ErrConflict), errors.Is(err, job.ErrUnknown): // what became of it, the ledger tells\n",
		new:    "	case errors.Is(err, job.ErrUnknown):\n		return after(time.Second)\n	case errors.Is(err, job.ErrConflict):\n",
		test:   "TestAnUnansweredClaimIsSettledBeforeItsMessageIsAnswered",
	},
	{
		name:   "completion-without-revision",
		breaks: "an outcome is written over any record, not at the revision of the claim (invariant 5)",
		file:   "consumer/complete.go",
		old:    "	t.cfg.Ledger.Send(ctx, t.rec, fence, func(revision uint64, err error) {\n",
		new: `	_, last, _ := t.cfg.Ledger.Read(ctx, t.rec.Slot)
	t.cfg.Ledger.Send(ctx, t.rec, last, func(revision uint64, err error) {
`,
		test: "TestAWorkerThatLostItsClaimCannotCompleteAndSendsNothing",
	},
	{
		name:   "ack-before-the-record",
		breaks: "a message is acked before the outcome of its slot is on the broker's disk (invariant 6)",
		file:   "consumer/complete.go",
		old:    "		// Unknown ends with the node's context. Anything else, a full bucket say,\n",
		new:    "		if !errors.Is(err, job.ErrUnknown) {\n			return done()\n		}\n		// Unknown ends with the node's context. Anything else, a full bucket say,\n",
		test:   "TestAckOnlyAfterTheRecordIsDurable",
	},
	{
		name:   "late-ack",
		breaks: "a worker that lost its claim acks the message of the new owner (invariant 6)",
		file:   "consumer/complete.go",
		old:    "	t.emitKind(job.EventRefused, end, fence, \"\")\n	return silent()\n",
		new:    "	t.emitKind(job.EventRefused, end, fence, \"\")\n	return done()\n",
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
		file:   "consumer/task.go",
		old:    " && (e == nil || e.Job.Deadline == 0)",
		new:    " && (e == nil || true)",
		test:   "TestASlotWithADeadlineIsNotClaimedAhead",
	},
	{
		name:   "dropped-job-forgotten",
		breaks: "a slot whose job was dropped between its claim and its start is left claimed",
		file:   "consumer/attempt.go",
		old:    "	if !t.placed || handler == nil ||",
		new:    "	if handler == nil {\n		return silent()\n	}\n	if !t.placed ||",
		test:   "TestASlotWhoseJobIsDroppedBetweenItsClaimAndItsStartIsReleasedAtOnce",
	},
	{
		name:   "given-back-behind-newer",
		breaks: "a worker that is not ready releases slots, and newer ones start before them",
		file:   "consumer/task.go",
		old:    "	return after(0), !isClosed(t.cfg.Ready())\n",
		new:    "	return after(shortest), !isClosed(t.cfg.Ready())\n",
		test:   "TestAWorkerThatIsNotReadyGivesSlotsBackInOrder",
	},
	{
		name:   "context-by-timers-alone",
		breaks: "a handler's context ends when a goroutine ends it, not when its lease ends (invariant 4)",
		file:   "consumer/context.go",
		old:    "	if !c.trusted() {\n",
		new:    "	if false {\n",
		test:   "TestAHandlersContextEndsByTheClock",
	},
	{
		name:   "outcome-ends-with-the-lease",
		breaks: "the success of a handler that returned in time is thrown away when the broker is away for a lease",
		file:   "consumer/attempt.go",
		old:    "		if inTime {\n",
		new:    "		if finish {\n",
		test:   "TestASuccessIsRecordedAlthoughTheLeaseEndsBeforeItIsAnswered",
	},
	{
		name:   "lost-claim-given-up",
		breaks: "a claim whose record vanished from the ledger is taken for another worker's",
		file:   "consumer/complete.go",
		old:    "			case !outlasts || stands == at:\n",
		new:    "			case !outlasts || true:\n",
		test:   "TestAClaimThatTheLedgerLostIsWrittenAgain",
	},
	{
		name:   "panic-is-not-the-slots",
		breaks: "a panic in the handling of one slot ends the process",
		file:   "consumer/failed.go",
		old:    "		t.failed(p)\n",
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
		test: "TestLeavingALockFreesNobodyElsesPlace",
	},
	{
		name:   "lock-left-without-an-outcome",
		breaks: "a slot that waits for its retry leaves its lock",
		file:   "consumer/task.go",
		old:    "if t.final && t.entered {",
		new:    "if t.entered {",
		test:   "TestASlotThatIsToBeRetriedKeepsItsPlace",
	},
	{
		name:   "lock-remembered-for-good",
		breaks: "a holder that had ended counts as ended, although the lock was written since",
		file:   "consumer/lock.go",
		old:    "	clear(ended)\n",
		new:    "",
		test:   "TestAShortSlotThatIsReopenedHasItsPlaceFromThoseWhoSawItEnd",
	},
	{
		name:   "ack-before-what-follows",
		breaks: "a slot is acked although what follows from it is not on the broker",
		file:   "consumer/follow.go",
		old:    "return t.postponed(fmt.Errorf(\"what follows",
		new:    "_ = t.postponed(fmt.Errorf(\"what follows",
		test:   "TestNoAckBeforeWhatFollowsIsOnTheBroker",
	},
	{
		name:   "nothing-follows-again",
		breaks: "what follows from an outcome never happens if a crash came first",
		file:   "consumer/task.go",
		old:    "return t.concluded(*t.view.Record, t.view.Revision), true",
		new:    "return done(), true",
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
		file:   "consumer/serve.go",
		old:    "if t.d.Count <= 2 {",
		new:    "if t.d.Count > 0 {",
		test:   "TestAMessageThatCannotBeReadIsLeftForANewerNodeUpToTheHorizon",
	},
}
