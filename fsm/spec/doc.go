// Package spec is the specification of the scripts in redisstore/lua: production runs the scripts, and never this
// package. It has every transition as a pure function (state + event → state + effects). It does no I/O and has no
// clock and no randomness of its own: a transition gets them in an [Env].
//
// Tests run the functions. They are the whole logic of the store in memory (fsm/spec/memstore). The tests in
// test/property run that store beside the scripts, with the same histories. They demand the same result after every
// step.
//
// Each function has a twin in redisstore/lua. A second name is the twin's function in that file.
//
// A consumer comes, goes, and is woken:
//
//	NewConsumer      library/consumer.lua create
//	Anew             library/anew.lua start_over
//	Remove           library/consumer.lua remove
//	Observe          library/transitions.lua observed
//	Wakeable         observe.lua
//	Hide             hide.lua
//	Restart          library/anew.lua start_over
//	Due              due.lua
//
// A delivery attempt, and what follows from it:
//
//	Begin            begin.lua
//	Park             park.lua
//	Current          library/steps.lua current
//	Out              library/steps.lua attempt_out
//	Counts           deliver.lua
//	Accept           accept.lua
//	Finish           finish.lua
//	Deliver          deliver.lua
//	Fail             fail.lua
//	RetryDelay       library/schedule.lua retry_delay
//	Callback         callback.lua
//
// What an operator or a probe asks for:
//
//	Resume           resume.lua
//	ResumeLost       resume.lua
//	Revive           library/transitions.lua revive
//	Retry            retry.lua, and retry_delivery.lua for one wake
//	Rewind           rewind.lua
//	Probe            probe_delivery.lua
//	ReleaseHeld      release_held.lua
//	Replays          library/replay.lua replays
//	OfGivenUp        library/replay.lua replays
//	StartReplay      library/replay.lua replay_next
//	Count            tally.lua count, and tally_each.lua one by one
//
// An endpoint:
//
//	FailEndpoint     fail_endpoint.lua
//	PauseOrigin      fail_endpoint.lua
//	RecoverEndpoint  recover_endpoint.lua
//	ProbeEndpoint    probe_endpoint.lua
//	ReturnProbe      endpoint.lua return_probe
//	RetryEndpoint    retry_endpoint.lua
//
// An event that was handed over:
//
//	ReserveKey       reserve_key.lua
//	TakeEvent        take_event.lua
//	EventFailed      library/outbox.lua event_failed
//	EventOver        library/outbox.lua event_over
//	ExpireEvent      library/outbox.lua forget_expired
//	CancelEvent      cancel_event.lua
//	MayRemove        begin_removal.lua
//	ReleaseEvent     release_event.lua
//	PutOff           due_events.lua
//	CountEvent       library/outbox.lua count_event
//
// A limit of requests:
//
//	TakeTurns        take_turns.lua
//
// A stream, and the order of things:
//
//	LinkStream       link_stream.lua
//	Beginning        library/tails.lua begin_at
//	Raised           library/tails.lua note_tail
//	Fence            library/fence.lua fence
//	VersionsThrough  library/streams.lua lost_version
package spec
