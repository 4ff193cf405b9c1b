package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// invented answers calls of one script in place of Redis.
type invented struct {
	script *script
	reply  any
}

// calledBy is the name of the script that a command calls.
func calledBy(cmd redis.Cmder) string {
	if len(cmd.Args()) < 2 {
		return ""
	}
	return ScriptCalled(fmt.Sprint(cmd.Args()[1]))
}

func (i *invented) answers(cmd redis.Cmder) bool {
	c, ok := cmd.(*redis.Cmd)
	if !ok || i.script == nil || calledBy(cmd) != i.script.name {
		return false
	}
	c.SetVal(i.reply)
	return true
}

func (*invented) DialHook(next redis.DialHook) redis.DialHook { return next }

func (i *invented) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if i.answers(cmd) {
			return nil
		}
		return next(ctx, cmd)
	}
}

func (i *invented) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if !i.answers(cmd) {
				return next(ctx, cmds)
			}
		}
		return nil
	}
}

// outcomeAnd is a reply of a script of a partition, without the watermark.
type outcomeAnd struct {
	told  any
	items []any
}

// caller calls a script the way the program does, and invents replies that the script never gives.
type caller struct {
	script  *script
	call    func(context.Context, *Store) error
	unknown []any
}

func callers() []caller {
	var (
		none    = []any{}
		bored   = []any{[]any{"removed", "s", "g", "s:%2Fa", "/a", "4", "boredom"}}
		tired   = []any{[]any{"ended", "c", "s", "/a", "1", "w_1", "0", "tiredness"}}
		forlorn = []any{[]any{"left", "s", "/a", "grief", int64(1)}}
		record  = []any{"", "0", "0"}
		odd     = []any{"1,2,3", "0", "0"}
		sub     = fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**", Webhook: "https://example.com/"}
		ref     = fsm.DeliveryRef{Consumer: fsm.RefOf("s", "/a"), Epoch: 1, WakeID: "w_1", Attempt: 1}
	)
	with := func(told []any, items ...any) any { return outcomeAnd{told, items} }
	// kept is an event as lua/read_events.lua returns it.
	kept := func(text, status, tries, delayed, by string) []any {
		return []any{[]any{int64(0), int64(0), int64(0), []any{
			text, "/a", status, "0", "", "", "0", "0", "", "0", tries, delayed, "0", by, "0", "0", "0", "",
		}}}
	}
	expires := func(ctx context.Context, s *Store) error {
		s.ownership.Replace([]int{0})
		if err := s.rdb.ZAdd(ctx, "rv:{0}:expire", redis.Z{Score: 1, Member: "whe_0_1"}).Err(); err != nil {
			return err
		}
		return s.expireEvents(ctx)
	}
	return []caller{
		{scriptStream, func(ctx context.Context, s *Store) error {
			_, err := s.Stream(ctx, "/a")
			return err
		}, []any{[]any{odd}}},
		{scriptNoteStream, func(ctx context.Context, s *Store) error {
			_, _, err := s.NoteStream(ctx, fsm.NewStream("/a", "1"), time.Minute)
			return err
		}, []any{[]any{int64(7), record}, []any{int64(1), odd}}},
		{scriptLinkStream, func(ctx context.Context, s *Store) error {
			_, err := s.LinkStream(ctx, "/a", fsm.Linking{})
			return err
		}, []any{
			with(none, int64(7), record, int64(0)), with(bored, int64(1), record, int64(0)),
			with(none, int64(3), record, int64(0)),
		}},
		{scriptForgetStream, func(ctx context.Context, s *Store) error {
			_, err := s.ForgetStream(ctx, "/a", 1, false)
			return err
		}, []any{int64(7)}},
		{scriptScanStreams, func(ctx context.Context, s *Store) error {
			_, _, err := s.ScanStreams(ctx, 0, "0")
			return err
		}, []any{[]any{"0", []any{"/a"}}}},
		{scriptTakeDeletion, func(ctx context.Context, s *Store) error {
			_, err := s.TakeDeletion(ctx, "/a")
			return err
		}, []any{int64(7)}},
		{scriptObserve, func(ctx context.Context, s *Store) error {
			_, err := s.Observe(ctx, 0, "/a", "1", false)
			return err
		}, []any{
			with(none, int64(7), int64(1), "", int64(0), "0"), with(none, int64(1), int64(7), "", int64(0), "0"),
			with(none, int64(1), int64(1), "", int64(7), "0"), with(tired, int64(1), int64(1), "", int64(0), "0"),
		}},
		{scriptHide, func(ctx context.Context, s *Store) error {
			_, err := s.Hide(ctx, "/a", fsm.MissingAnew)
			return err
		}, []any{with(bored, "0")}},
		{scriptRestart, func(ctx context.Context, s *Store) error {
			_, err := s.Restart(ctx, 0, "/a", "2", "1")
			return err
		}, []any{with(bored, "0"), with(forlorn, "0")}},
		{scriptDeleted, func(ctx context.Context, s *Store) error {
			_, err := s.Deleted(ctx, 0, "/a", fsm.Deletion{})
			return err
		}, []any{with(bored, "0")}},
		{scriptDue, func(ctx context.Context, s *Store) error {
			_, _, err := s.Due(ctx, 0, 10)
			return err
		}, []any{with(none, int64(1), int64(7)), with(tired, int64(1), int64(0))}},
		{scriptLongest, func(ctx context.Context, s *Store) error {
			_, _, _, err := s.LongestWaiting(ctx, sub, time.Time{})
			return err
		}, []any{[]any{int64(0), "", "", int64(0), "", int64(7), int64(0)}}},
		{scriptProbeDelivery, func(ctx context.Context, s *Store) error {
			_, err := s.ProbeDelivery(ctx, ref)
			return err
		}, []any{int64(7)}},
		{scriptReserveKey, func(ctx context.Context, s *Store) error {
			_, err := s.ReserveKey(ctx, "key", fsm.OutboxKey{ID: "whe_0_1"})
			return err
		}, []any{[]any{"whe_0_1", "{}", int64(7)}, []any{"whe_0_1", "no JSON", int64(1)}}},
		{scriptKeepKey, func(ctx context.Context, s *Store) error {
			return s.KeepKey(ctx, "key", "whe_0_1")
		}, []any{int64(7)}},
		{scriptKeyOf, func(ctx context.Context, s *Store) error {
			_, err := s.EventOfKey(ctx, "key")
			return err
		}, []any{"whe_1_1"}},
		{scriptAcceptEvent, func(ctx context.Context, s *Store) error {
			_, err := s.AcceptEvent(ctx, fsm.OutboxEvent{ID: "whe_0_1"}, "/a", "s:%2Fa")
			return err
		}, []any{int64(7)}},
		{scriptTakeEvent, func(ctx context.Context, s *Store) error {
			_, err := s.TakeEvent(ctx, ref, fsm.OutboxEvent{ID: "whe_0_1"}, false)
			return err
		}, []any{int64(7)}},
		{scriptReadEvents, func(ctx context.Context, s *Store) error {
			_, err := s.OutboxEvent(ctx, "whe_0_1")
			return err
		}, []any{
			[]any{[]any{"many", int64(0)}},
			kept("{}", "lost", "", "0", ""), kept("{}", "pending", "", "0", "lost"),
			kept("{}", "pending", "never", "0", ""), kept("{}", "pending", "", "soon", ""),
			kept("no JSON", "pending", "", "0", ""),
		}},
		{scriptListEvents, func(ctx context.Context, s *Store) error {
			_, err := s.ListEvents(ctx, fsm.OutboxSpan{Lists: fsm.OutboxListsOf("")}, 1)
			return err
		}, []any{[]any{[]any{int64(7)}}}},
		{scriptCountEvents, func(ctx context.Context, s *Store) error {
			_, err := s.CountEvents(ctx, 0)
			return err
		}, []any{[]any{"", "0", "0", "0", "0", "0", "0", "none"}}},
		{scriptCountHours, func(ctx context.Context, s *Store) error {
			_, err := s.OutboxHours(ctx, 0, 1, 2)
			return err
		}, []any{
			[]any{[]any{"1", []any{"unknown github", "1"}}}, []any{[]any{"1", []any{"delivered github", "many"}}},
		}},
		{scriptCancelEvent, func(ctx context.Context, s *Store) error {
			_, err := s.CancelEvent(ctx, "whe_0_1")
			return err
		}, []any{int64(7)}},
		{scriptEndLoss, func(ctx context.Context, s *Store) error {
			s.ownership.Replace([]int{0})
			if err := s.rdb.HSet(ctx, "rv:{0}:meta", "unresumed", 1).Err(); err != nil {
				return err
			}
			return s.resumeLost(ctx)
		}, []any{int64(7)}},
		{scriptDueEvents, func(ctx context.Context, s *Store) error {
			_, err := s.DueEvents(ctx, 0, 1)
			return err
		}, []any{[]any{[]any{int64(7)}}}},
		{scriptReleaseEvent, func(ctx context.Context, s *Store) error {
			return s.ReleaseEvent(ctx, "whe_0_1", "")
		}, []any{int64(7)}},
		{scriptBeginRemoval, func(ctx context.Context, s *Store) error {
			_, err := s.BeginRemoval(ctx, "/a", "s:%2Fa", "1")
			return err
		}, []any{int64(7)}},
		{scriptEndRemoval, func(ctx context.Context, s *Store) error {
			_, err := s.EndRemoval(ctx, "/a")
			return err
		}, []any{int64(7)}},
		{scriptExpiredEvents, expires, []any{[]any{[]any{"whe_0_1"}}}},
		{scriptDropKey, expires, []any{int64(7)}},
		{scriptDropEvent, expires, []any{int64(7)}},
		{scriptFail, func(ctx context.Context, s *Store) error {
			_, err := s.Fail(ctx, ref, fsm.Failure{})
			return err
		}, []any{with(bored), with(tired)}},
		{scriptPark, func(ctx context.Context, s *Store) error {
			_, err := s.Park(ctx, ref, fsm.BlockedSlot, time.Minute)
			return err
		}, []any{with(bored), with(tired)}},
		{scriptBegin, func(ctx context.Context, s *Store) error {
			_, err := s.Begin(ctx, ref, "a")
			return err
		}, []any{with(bored), with(tired)}},
		{scriptAccept, func(ctx context.Context, s *Store) error {
			_, err := s.Accept(ctx, ref)
			return err
		}, []any{with(bored), with(tired)}},
		{scriptFinish, func(ctx context.Context, s *Store) error {
			_, err := s.Finish(ctx, ref, nil)
			return err
		}, []any{with(bored), with(tired)}},
		{scriptDeliver, func(ctx context.Context, s *Store) error {
			_, err := s.Deliver(ctx, ref, fsm.Delivered{Path: "/a", To: "5", Tail: "5"})
			return err
		}, []any{with(bored), with(tired)}},
		{scriptCallback, func(ctx context.Context, s *Store) error {
			_, err := s.Callback(ctx, fsm.Callback{Consumer: fsm.RefOf("s", "/a"), Primary: "/a"})
			return err
		}, []any{with(none, "BORED", "", none, ""), with(tired, "", "", none, "")}},
		{scriptMarkDeleted, func(ctx context.Context, s *Store) error {
			_, err := s.markDeleted(ctx, "s", "g", 1)
			return err
		}, []any{[]any{none}}},
		{scriptDrop, func(ctx context.Context, s *Store) error {
			return s.drop(ctx, []dropping{{id: "s", generation: "g", left: 1}})
		}, []any{with(tired, int64(0))}},
		{scriptResume, func(ctx context.Context, s *Store) error {
			_, _, err := s.ResumeSubscription(ctx, "s")
			return err
		}, []any{with(bored, "0", int64(1)), with(none, "0", "boredom")}},
		{scriptListLetters, func(ctx context.Context, s *Store) error {
			_, err := s.DeadLetters(ctx, fsm.LetterSpan{}, 1)
			return err
		}, []any{[]any{[]any{"1"}}, []any{[]any{"one", "0 s {}"}}, []any{[]any{"1", int64(7)}}}},
		{scriptDropLetters, func(ctx context.Context, s *Store) error {
			_, _, err := s.DropDeadLetters(ctx, fsm.LetterSpan{}, 1)
			return err
		}, []any{
			with(none, int64(1), int64(0), int64(1), "many"), with(bored, int64(1), int64(0), int64(1), int64(7)),
		}},
		{scriptReplayLetters, func(ctx context.Context, s *Store) error {
			_, _, err := s.ReplayDeadLetters(ctx, fsm.LetterSpan{}, 1)
			return err
		}, []any{
			with(none, "many", int64(0), int64(0), int64(0)), with(bored, int64(1), int64(0), int64(1), int64(7)),
		}},
		{scriptLettersUpto, func(ctx context.Context, s *Store) error {
			_, err := s.oldest(ctx, "s", []lettersOf{{0, 1}}, 1, 2)
			return err
		}, nil},
		{scriptReplaySpan, func(ctx context.Context, s *Store) error {
			_, _, err := s.ReplaySpan(ctx, fsm.ConsumerRef{ID: "s:a", Home: "/a"}, 0, fsm.ReplaySpan{})
			return err
		}, []any{with(none, "many"), with(bored, int64(7))}},
		{scriptRewind, func(ctx context.Context, s *Store) error {
			_, _, err := s.Rewind(ctx, fsm.Subscription{}, fsm.ConsumerRef{ID: "s:a", Home: "/a"}, "/a", "1")
			return err
		}, []any{with(none, "many", ""), with(bored, int64(7), "")}},
		{scriptReplayQueues, func(ctx context.Context, s *Store) error {
			_, err := s.ReplayQueues(ctx, 0, "", "", 1)
			return err
		}, []any{
			[]any{[]any{"s:a"}},
			[]any{[]any{[]any{"s:a", "s", "/a", "many", "0", "0", int64(0), "", "", "0", "0", ""}}},
		}},
		{scriptCancelReplays, func(ctx context.Context, s *Store) error {
			_, _, err := s.CancelReplays(ctx, fsm.ConsumerRef{ID: "s:a", Home: "/a"})
			return err
		}, []any{with(none, "many"), with(bored, int64(7))}},
		{scriptCountLetters, func(ctx context.Context, s *Store) error {
			_, err := s.CountDeadLetters(ctx)
			return err
		}, []any{
			[]any{int64(7), int64(1), []any{"s"}},
			[]any{int64(7), int64(1), []any{"s", "many"}},
			[]any{"many", int64(1), []any{}},
			[]any{int64(7), "many", []any{}},
		}},
		{scriptScanConsumers, func(ctx context.Context, s *Store) error {
			_, _, err := s.ScanConsumers(ctx, sub, 0, "0", 10)
			return err
		}, []any{[]any{"0", []any{[]any{"c", "idle", "error"}}}, []any{"0", []any{[]any{"c"}}}}},
		{scriptTally, func(ctx context.Context, s *Store) error {
			_, err := s.TallyConsumers(ctx, []fsm.Subscription{sub})
			return err
		}, []any{
			[]any{"0", []any{[]any{int64(1), int64(1)}}},
			[]any{"0", []any{append(slices.Repeat([]any{int64(1)}, 10), "boredom", "", int64(1))}},
			[]any{"0", []any{append(slices.Repeat([]any{int64(1)}, 11), "", "boredom")}},
			[]any{"0", []any{append([]any{int64(0)}, append(slices.Repeat([]any{int64(1)}, 10), "", int64(1))...)}},
			[]any{"0", []any{append([]any{int64(2)}, append(slices.Repeat([]any{int64(1)}, 10), "", int64(1))...)}},
		}},
		{scriptTallyEach, func(ctx context.Context, s *Store) error {
			if err := s.rdb.SAdd(ctx, s.keys.consumersOf(sub, 0), "s:a").Err(); err != nil {
				return err
			}
			_, err := s.TallyEach(ctx, []fsm.Subscription{sub}, 1)
			return err
		}, []any{
			[]any{[]any{[]any{int64(1), int64(1)}}},
			[]any{[]any{append(slices.Repeat([]any{int64(1)}, 10), "boredom", "", int64(1))}},
			[]any{[]any{append([]any{int64(2)}, append(slices.Repeat([]any{int64(1)}, 10), "", int64(1))...)}},
		}},
		{scriptLease, func(ctx context.Context, s *Store) error {
			return s.leases(ctx, "r", []int{0}, time.Second)[0].err
		}, []any{[]any{int64(7), int64(0)}}},
		{scriptCensus, func(_ context.Context, s *Store) error {
			if !s.count([]int{0}).up {
				return errors.New("redis: the figures are not complete")
			}
			return nil
		}, []any{[]any{int64(1), int64(1)}}},
		{scriptCountAttempts, func(ctx context.Context, s *Store) error {
			s.counter.attempted(fsm.Attempt{Result: fsm.AttemptDone, Sent: true})
			return s.counter.write(ctx)
		}, []any{int64(7)}},
		{scriptCreateSubscription, func(ctx context.Context, s *Store) error {
			_, _, err := s.CreateSubscription(ctx, sub)
			return err
		}, []any{int64(1)}},
		{scriptChangeSubscription, func(ctx context.Context, s *Store) error {
			_, _, err := s.tell(ctx, sub)
			return err
		}, []any{int64(7)}},
		{scriptDeleteSubscription, func(ctx context.Context, s *Store) error {
			return s.DeleteSubscription(ctx, "another")
		}, []any{[]any{int64(1)}, []any{int64(1), []any{int64(1)}}}},
		{scriptListSubscriptions, func(ctx context.Context, s *Store) error {
			return s.RefreshCatalog(ctx)
		}, []any{[]any{"1", int64(7), none}, []any{"1", int64(0), []any{"s"}}}},
		{scriptChangeOutbox, func(ctx context.Context, s *Store) error {
			_, _, err := s.ChangeOutboxConfig(ctx, func(c fsm.OutboxConfig) (fsm.OutboxConfig, error) { return c, nil })
			return err
		}, []any{int64(7)}},
		{scriptListEndpoints, func(ctx context.Context, s *Store) error {
			return s.readEndpoints(ctx)
		}, []any{
			[]any{"1", int64(7), none, int64(1)},
			[]any{"1", int64(1), []any{"g"}, int64(1)},
			[]any{"1", int64(1), []any{"g", "1 boredom"}, int64(1)},
			[]any{"1", int64(1), []any{"g", "1 0 5 0 7 0"}, int64(1)},
			[]any{"1", int64(0), none, int64(1), []any{"https://a:443"}},
			[]any{"1", int64(0), none, int64(1), []any{"https://a:443", "boredom"}},
		}},
		{scriptFailEndpoint, func(ctx context.Context, s *Store) error {
			_, err := s.FailEndpoint(ctx, sub, fsm.EndpointFailure{RetryAfter: time.Second})
			return err
		}, []any{[]any{"1", "boredom", int64(0), int64(0), int64(0), int64(0), int64(1), int64(0)}}},
		{scriptRecoverEndpoint, func(ctx context.Context, s *Store) error {
			_, err := s.RecoverEndpoint(ctx, sub)
			return err
		}, []any{
			[]any{"1", int64(0), int64(0), int64(0), int64(0), int64(0), int64(1)},
			[]any{
				"1", int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), "", int64(1), int64(1),
				"boredom", "1",
			},
		}},
		{scriptProbeEndpoint, func(ctx context.Context, s *Store) error {
			_, err := s.ProbeEndpoint(ctx, sub, time.Second)
			return err
		}, []any{[]any{"1", int64(0), int64(0), int64(0), int64(0), int64(0), int64(1), int64(7)}}},
		{scriptReturnProbe, func(ctx context.Context, s *Store) error {
			return s.ReturnProbe(ctx, sub, time.UnixMilli(1), true)
		}, []any{[]any{"1", int64(0), int64(0), int64(0), int64(7), int64(0), int64(1), int64(0)}}},
		{scriptReleaseHeld, func(ctx context.Context, s *Store) error {
			_, err := s.ReleaseHeld(ctx, sub, fsm.BlockedDown)
			return err
		}, []any{with(bored, "0")}},
		{scriptRetry, func(ctx context.Context, s *Store) error {
			_, err := s.RetrySubscription(ctx, sub.ID)
			return err
		}, []any{[]any{"0", "boredom"}}},
		{scriptRetryDelivery, func(ctx context.Context, s *Store) error {
			_, err := s.RetryDelivery(ctx, sub, ref)
			return err
		}, []any{int64(7)}},
		{scriptRetryEndpoint, func(ctx context.Context, s *Store) error {
			_, err := s.RetrySubscription(ctx, sub.ID)
			return err
		}, []any{[]any{"1", int64(0), int64(0), int64(0), int64(0), int64(0), int64(1), int64(7)}}},
		{scriptSetBackfill, func(ctx context.Context, s *Store) error {
			return s.SetBackfill(ctx, sub, fsm.Backfill{})
		}, []any{int64(7)}},
		{scriptTakeTurns, func(ctx context.Context, s *Store) error {
			_, err := s.TakeTurns(ctx, []fsm.Limit{{Name: "a", Rate: 60}}, 1)
			return err
		}, []any{[]any{int64(1)}, []any{"boredom", int64(0)}}},
		{scriptNextDue, func(ctx context.Context, s *Store) error {
			_, err := s.NextDue(ctx, []int{0})
			return err
		}, []any{[]any{"boredom"}, none}},
		{scriptReplicaSet, func(ctx context.Context, s *Store) error {
			return s.Join(ctx)
		}, []any{
			[]any{"boredom", none, int64(0), none},
			[]any{int64(1), []any{int64(1)}, int64(0), none, []any{int64(1)}},
			[]any{int64(1), none, "boredom", none, none},
			[]any{int64(1), none, int64(0), "boredom", none},
			[]any{int64(1), none, int64(0), none, []any{"boredom"}},
			[]any{int64(1), none, int64(0), none, []any{int64(1)}},
		}},
		{scriptTokenKeys, func(ctx context.Context, s *Store) error {
			_, err := s.noteTokenKeys(ctx, time.Second)
			return err
		}, []any{int64(7)}},
		{scriptMoveRegistry, func(ctx context.Context, s *Store) error {
			_, err := s.MoveRegistry(ctx, fsm.RegistryPlace{Offset: "1"}, fsm.RegistryPlace{Offset: "2"}, false)
			return err
		}, []any{int64(7)}},
	}
}

func TestAReplyThatTheScriptNeverGivesIsAnError(t *testing.T) {
	client, closeClient, err := Connect(Embedded, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeClient() }()
	i := &invented{}
	client.AddHook(i)
	// The catalog of a new one has yet to be read.
	open := func() *Store {
		return New(client, Options{Partitions: 1, Embedded: true, TokenKeys: []string{"ab"}})
	}
	sub := fsm.Subscription{ID: "s", Generation: "g", Pattern: "/**", Webhook: "https://example.com/"}
	if _, _, err := open().CreateSubscription(t.Context(), sub); err != nil {
		t.Fatal(err)
	}
	tested := map[*script]bool{}
	for _, c := range callers() {
		tested[c.script] = true
		replies := []any{"?"}
		for _, r := range append(c.unknown, "?") {
			if c.script.partitioned { // the watermark, the outcome, and its own items
				switch of := r.(type) {
				case outcomeAnd:
					r = append([]any{int64(1), of.told}, of.items...)
				case []any:
					r = append([]any{int64(1), nil}, of...)
				default:
					r = []any{int64(1), of, of}
				}
			}
			replies = append(replies, r)
		}
		for _, r := range replies {
			t.Run(fmt.Sprintf("%s %v", c.script.name, r), func(t *testing.T) {
				*i = invented{script: c.script, reply: r}
				if err := c.call(t.Context(), open()); err == nil || errors.Is(err, fsm.ErrUnavailable) {
					t.Errorf("it is taken as an answer: %v", err)
				}
			})
		}
		*i = invented{}
	}
	for _, s := range scripts {
		if !tested[s] {
			t.Errorf("nobody has tried the replies of %s", s.name)
		}
	}
}
