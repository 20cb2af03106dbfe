package main

// mutant is one way to break the code.
type mutant struct {
	name string

	// breaks says which rule is gone.
	breaks string

	file     string // below the module's root
	old, new string // old is there once

	// test, in the file's package or in the folder that is named, has to fail.
	test string
	in   string
}

// mutants are in the order of a slot's life.
var mutants = []mutant{
	{
		name:   "watermark-before-publish",
		breaks: "the watermark moves when slots are handed out, not when they are acknowledged (invariant 2)",
		file:   "producer/outbox.go",
		old:    "for len(o.marks) > 0 && o.marks[0].number <= o.first {",
		new:    "for len(o.marks) > 0 {",
		test:   "TestWatermarkMovesOnlyAfterEverySlotUpToItIsStored",
	},
	{
		name:   "watermark-over-its-reset",
		breaks: "a producer writes its own position over a watermark that an operator has put back",
		file:   "producer/keeper.go",
		old:    "if err == nil && p.behind(k.stored) {",
		new:    "if err == nil && false {",
		test:   "TestAProducerDoesNotOverwriteAReset",
	},
	{
		name:   "announcement-for-other-members",
		breaks: "an announcement is believed although it was made for other members, and so for another share",
		file:   "producer/fleet.go",
		old:    "return p.last.Members == f.members && p.last.Registry == f.registry",
		new:    "return p.last.Registry == f.registry",
		test:   "TestAnAnnouncementForOtherMembersIsNotBelieved",
	},
	{
		name:   "announcement-of-an-older-registry",
		breaks: "an announcement is believed although it was made without knowing of an edit",
		file:   "producer/fleet.go",
		old:    "return p.last.Members == f.members && p.last.Registry == f.registry",
		new:    "return p.last.Members == f.members",
		test:   "TestProducersThatDisagreeOnTheRegistryTrustNothing",
	},
	{
		name:   "announce-before-the-ack",
		breaks: "a producer announces its share when it has sent it, not when it is acknowledged",
		file:   "producer/standby.go",
		old:    "it.state == held || it.state == inFlight || it.state == waiting",
		new:    "it.state == held",
		test:   "TestAProducerThatCannotPublishIsNotWaitedForAgain",
	},
	{
		name:   "copies-kept-over-a-change",
		breaks: "copies stay with a producer whose share they are not any more",
		file:   "producer/speak.go",
		old:    "		s.outbox.reshare()\n",
		new:    "",
		test:   "TestTheShareOfAProducerThatLeavesIsPublished",
	},
	{
		name:   "copy-dropped-for-another-plan",
		breaks: "a copy is dropped on a word about a newer definition than the one it was computed from",
		file:   "producer/standby.go",
		old:    "current := held.registry == b.digest",
		new:    "current := true",
		test:   "TestACopyOfAnEarlierDefinitionIsHeld",
	},
	{
		name:   "mark-past-what-was-taken-over",
		breaks: "the watermark does not wait for copies that became this producer's duty",
		file:   "producer/standby.go",
		old:    "o.marks[i].number += uint64(len(items))",
		new:    "o.marks[i].number += 0",
		test:   "TestAMarkWaitsForCopiesThatBecameOurs",
	},
	{
		name:   "start-after-a-read",
		breaks: "a handler starts when nothing that was read speaks against it, without a won write (invariant 3)",
		file:   "consumer/task.go",
		old:    "	t.cfg.Ledger.Send(ctx, t.rec, t.view.Revision, func(revision uint64, err error) {\n",
		new: `	t.cfg.Ledger.Send(ctx, t.rec, t.view.Revision, func(revision uint64, err error) {
		if action == job.Start {
			err = nil
		}
`,
		test: "TestNoHandlerStartsWithoutAWonWrite",
	},
	{
		name:   "start-after-the-lease",
		breaks: "a handler starts although the lease ended while the claim was on its way (invariant 4)",
		file:   "consumer/attempt.go",
		old:    "if !c.cfg.Node.Trusted() || handler == nil {",
		new:    "if handler == nil {",
		test:   "TestNoHandlerStartsWithoutAWonWrite",
	},
	{
		name:   "unknown-claim-forgotten",
		breaks: "a claim without an answer is given up; it may have been stored, and then nobody runs the slot (invariant 8)",
		file:   "consumer/task.go",
		old:    "	case errors.Is(err, job.ErrConflict), errors.Is(err, job.ErrUnknown): // what became of it, the ledger tells\n",
		new:    "	case errors.Is(err, job.ErrUnknown):\n		return after(time.Second)\n	case errors.Is(err, job.ErrConflict):\n",
		test:   "TestAnUnansweredClaimIsSettledBeforeItsMessageIsAnswered",
	},
	{
		name:   "own-claim-not-adopted",
		breaks: "a claim of one's own that nobody remembers is left to whoever proves oneself dead",
		file:   "job/claim.go",
		old:    "		return claim(d, v, v.Record.Attempt)\n	case !v.OwnerDead:",
		new:    "		return Step{Action: Later, Delay: time.Second}\n	case !v.OwnerDead:",
		test:   "TestClaimRules",
	},
	{
		name:   "nonce-ignored",
		breaks: "a write that was stored although its answer was lost is taken for somebody else's (invariant 8)",
		file:   "kv/write.go",
		old:    "case stored.same(m):",
		new:    "case false:",
		test:   "TestAWriteWhoseAnswerIsLostIsRecognised",
	},
	{
		name:   "unanswered-is-no",
		breaks: "a write without an answer is taken for one that did not happen (invariant 8)",
		file:   "kv/write.go",
		old:    "		default:\n			unanswered = true\n		}",
		new:    "		default:\n			return 0, fail(job.ErrConflict, err)\n		}",
		test:   "TestAWriteWhoseAnswerIsLostIsRecognised",
	},
	{
		name:   "write-without-revision",
		breaks: "no write names the revision that it stands on: the last one wins",
		file:   "kv/wire.go",
		old:    "	m.Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(revision, 10)}\n",
		new:    "",
		test:   "TestConformOnOneServer",
	},
	{
		name:   "completion-without-revision",
		breaks: "an outcome is written over whatever stands there, not at the revision of the claim (invariant 5)",
		file:   "consumer/attempt.go",
		old:    "	t.cfg.Ledger.Send(ctx, t.rec, fence, func(revision uint64, err error) {\n",
		new: `	_, last, _ := t.cfg.Ledger.Read(ctx, t.rec.Slot)
	t.cfg.Ledger.Send(ctx, t.rec, last, func(revision uint64, err error) {
`,
		test: "TestAWorkerThatLostItsClaimCannotCompleteAndSendsNothing",
	},
	{
		name:   "ack-before-the-record",
		breaks: "a message is acked before the outcome of its slot is on the broker's disk (invariant 6)",
		file:   "consumer/attempt.go",
		old:    "		// Unknown ends with the node's context. Anything else, a full bucket say,\n",
		new:    "		if !errors.Is(err, job.ErrUnknown) {\n			return done()\n		}\n		// Unknown ends with the node's context. Anything else, a full bucket say,\n",
		test:   "TestAckOnlyAfterTheRecordIsDurable",
	},
	{
		name:   "late-ack",
		breaks: "a worker that lost its claim acks: the message is gone from under the new owner (invariant 6)",
		file:   "consumer/attempt.go",
		old:    "	t.emitKind(job.EventRefused, end, fence, \"\")\n	return silent()\n",
		new:    "	t.emitKind(job.EventRefused, end, fence, \"\")\n	return done()\n",
		test:   "TestAWorkerThatLostItsClaimCannotCompleteAndSendsNothing",
	},
	{
		name:   "trust-from-the-answer",
		breaks: "a lease is counted from the answer to a heartbeat, not from before it was sent",
		file:   "internal/node/node.go",
		old:    "	until := sent + n.cfg.Lease - Margin(n.cfg.Lease)\n",
		new:    "	until := acked + n.cfg.Lease - Margin(n.cfg.Lease)\n",
		test:   "TestTrustIsCountedFromBeforeTheHeartbeatWasSent",
	},
	{
		name:   "takeover-without-fence",
		breaks: "a node is taken for dead because it was silent, without the won write that ends it",
		file:   "internal/node/peers.go",
		old:    "	return p.fence(ctx, name, by, s, lease)\n",
		new:    "	return true, 0, nil\n",
		test:   "TestOnlyAWholeLeaseOfSilenceIsDeath",
	},
	{
		name:   "fence-at-a-revision-not-seen",
		breaks: "a node is fenced at whatever revision its key has now, not at the one that was seen standing still",
		file:   "internal/node/peers.go",
		old:    "	revision, err := p.cfg.Store.Write(ctx, n, s.revision)\n",
		new:    "	_, at, _ := p.cfg.Store.Read(ctx, name)\n	revision, err := p.cfg.Store.Write(ctx, n, at)\n",
		test:   "TestAStalledWatchFencesNobody",
	},
	{
		name:   "takeover-before-the-lease-is-over",
		breaks: "half a lease of silence is enough",
		file:   "internal/node/peers.go",
		old:    "	if wait = lease - still; wait > 0 {",
		new:    "	if wait = lease/2 - still; wait > 0 {",
		test:   "TestOnlyAWholeLeaseOfSilenceIsDeath",
	},
	{
		name:   "lock-freed-by-delete",
		breaks: "a lock is set free whoever holds it by now, as a delete or a plain put does",
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
		breaks: "a slot that is to be retried holds its place no longer",
		file:   "consumer/task.go",
		old:    "if t.final && t.entered {",
		new:    "if t.entered {",
		test:   "TestASlotThatIsToBeRetriedKeepsItsPlace",
	},
	{
		name:   "lock-remembered-for-good",
		breaks: "who was known to have ended has ended, although the lock was written since",
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
		breaks: "what a crash kept from following from an outcome never does",
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
}
