package fault

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"reveille/test/harness"
)

// brokenSettle is how long a broken build is waited for to come to rest: longer than any of its deadlines.
const brokenSettle = 2 * livenessTimeout

// brokenSign is a build whose wakes nobody can verify.
var brokenSign = harness.BrokenScript{
	Name: "wakes are signed with something else", File: "dispatcher/format/sign.go",
	Old: "hex.EncodeToString(signature([]byte(secret), unix, body))",
	New: `hex.EncodeToString(signature([]byte(secret+"x"), unix, body))`,
}

// brokenPushes are builds that push events wrongly.
var brokenPushes = []harness.BrokenScript{
	{
		Name: "a push acknowledges one event too many", File: "tailer/upstream/readings.go",
		Old: "b.Within = r.from.At(r.done, r.next)",
		New: "b.Within = r.from.At(r.done+1, r.next)",
	},
	{
		Name: "a push that is refused is not retried", File: "dispatcher/format/push.go",
		Old: "if Success(a.Status) {",
		New: "if Success(a.Status) || a.Status == http.StatusInternalServerError {",
	},
	{
		Name: "a push does not acknowledge what a batch leaves over", File: "redisstore/lua/deliver.lua",
		Old: "if l and not after(to, l.tail) and",
		New: "if l and to == l.tail and",
	},
	{
		Name: "each attempt of a push has ids of its own", File: "fsm/batch.go",
		Old: "w.Generation, w.Primary, w.Born, base",
		New: "w.Generation, w.Primary, int64(w.Attempt), base",
	},
	{
		Name: "a push goes on from another offset than one that was sent again",
		File: "redisstore/lua/library/steps.lua",
		Old:  "return c.again == c.epoch and within or to",
		New:  "return to",
	},
	{
		Name: "the events of a push come in another order", File: "dispatcher/format/push.go",
		Old: "	b := d.Batch\n", New: "	b := d.Batch\n	slices.Reverse(b.Events)\n",
	},
	{
		Name: "a push that steps aside is forgotten", File: "redisstore/lua/library/transitions.lua",
		Old: "  save(aside)\n", New: "",
	},
	{
		Name: "a push aside is not over when it was taken", File: "redisstore/lua/library/steps.lua",
		Old: "  elseif c.owner and not pending(c) then", New: "  elseif false then",
	},
	{
		Name: "a push aside begins where its stream goes on", File: "redisstore/lua/library/transitions.lua",
		Old: "c.primary, links(c)[c.primary].acked, c.epoch,",
		New: "c.primary, within, c.epoch,",
	},
}

// brokenReplays are builds that replay dead letters wrongly.
var brokenReplays = []harness.BrokenScript{
	{
		Name: "a dead letter is dropped and not replayed", File: "redisstore/lua/replay_letters.lua",
		Old: "queue(c, n)", New: "drop_letter(n)",
	},
	{
		Name: "the last dead letter is replayed first", File: "redisstore/lua/replay_letters.lua",
		Old: "for _, n in ipairs(letters_of(sub, from, through, most)) do\n",
		New: "local numbers = letters_of(sub, from, through, most)\n" +
			"for i = #numbers, 1, -1 do\n  local n = numbers[i]\n",
	},
	{
		Name: "a dead letter is kept when its replay is over", File: "redisstore/lua/library/replay.lua",
		Old: "if redis.call('HEXISTS', P .. 'letters', n) == 1 then drop_letter(n) else replay_ends(c, n) end",
		New: "replay_ends(c, n)",
	},
	{
		Name: "a replay does not say that it is one", File: "dispatcher/format/push.go",
		Old: "if d.Delivery.Replay {", New: "if d.Delivery.Replay && d.Delivery.Primary == \"\" {",
	},
	{
		Name: "events that were refused for good leave no dead letter", File: "dispatcher/push.go",
		Old: "delivered.Dead = a.letter()", New: "_ = a.letter()",
	},
}

// brokenEndpoints are builds that take what is wrong with a proxy or an answer for something else.
var brokenEndpoints = []harness.BrokenScript{
	{
		Name: "what a proxy answers is taken for the endpoint's", File: "dispatcher/transport.go",
		Old: `case key.proxied && key.scheme == "http" && ofProxy(res):`,
		New: `case key.proxied && key.scheme == "gopher" && ofProxy(res):`,
	},
	{
		Name: "what a proxy answers to a CONNECT is final", File: "dispatcher/transport.go",
		Old: "	case err != nil:\n		return nil, err\n	case key.proxied && key.scheme",
		New: "	case err != nil && err.Error() != \"\" && key.proxied && key.scheme == \"https\":\n" +
			"		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody}, nil\n" +
			"	case err != nil:\n		return nil, err\n	case key.proxied && key.scheme",
	},
	{
		Name: "a switch of protocols counts as taken", File: "dispatcher/format/status.go",
		Old: "return status >= 200 && status <= 299", New: "return status >= 100 && status <= 299",
	},
	{
		Name: "an answer whose body breaks off does not count", File: "dispatcher/exchange.go",
		Old: "		a.response, a.status = response, response.StatusCode\n",
		New: "		a.response, a.status = response, response.StatusCode\n" +
			"		if response.ContentLength != 0 {\n			a.status = http.StatusBadGateway\n		}\n",
	},
}

// brokenHandOvers are builds that are wrong about events that are handed over.
var brokenHandOvers = []harness.BrokenScript{
	{
		Name: "an event is accepted that the stream server has not taken", File: "httpapi/control/outbox.go",
		Old: "text); err != nil {\n		return Handed{}, o.refused",
		New: "text); err != nil && ctx == nil {\n		return Handed{}, o.refused",
	},
	{
		Name: "an idempotency key is forgotten", File: "redisstore/lua/keep_key.lua",
		Old: "redis.call('PERSIST', key)", New: "redis.call('DEL', key)",
	},
	{
		Name: "an event that is dead counts as delivered", File: "redisstore/lua/library/outbox.lua",
		Old: "event_is(id, status, delivered_at == '0' and 'dead_letter' or 'delivered')",
		New: "event_is(id, status, 'delivered')",
	},
	{
		Name: "an event is retried without end", File: "dispatcher/push.go",
		Old: "last = a.delivery.Attempt >= a.most", New: "last = a.delivery.Attempt > 100*a.most",
	},
}

// caught is how each broken build is caught: what goes wrong meanwhile, and the rule that it breaks.
var caught = map[string]struct {
	faults func(*world, time.Duration)
	want   string
}{
	// On a busy machine few requests have an event come in the middle, and few workers come back too late.
	"a synchronous done acks the tail at the time of the answer": {
		func(w *world, span time.Duration) { misbehave(behaviour{linger: 2 * time.Second})(w, 4*span) }, ruleLost,
	},
	"each attempt has a wake id of its own": {
		misbehave(behaviour{status: 500}), ruleWakeID,
	},
	"the epoch does not rise": {
		nothing, ruleRepeated,
	},
	"epochs do not jump over what Redis has lost": {
		restoreBackup, ruleRepeated,
	},
	"a consumer has one wake id for ever": {
		nothing, ruleReused,
	},
	"callbacks of older epochs are accepted": {
		func(w *world, span time.Duration) { misbehave(behaviour{stall: 0.5})(w, 4*span) }, ruleZombie,
	},
	"a wake takes back what was acknowledged": {
		nothing, ruleBack,
	},
	"a consumer that is awake has no deadline": {
		misbehave(behaviour{crash: 0.5}), ruleFinal,
	},
	"a stream that answers 404 once is gone": {
		loseUpstream, ruleGone,
	},
	"an offset within the stream is refused": {
		nothing, ruleRefused,
	},
	brokenSign.Name: {
		nothing, ruleForged,
	},
	brokenPushes[0].Name: {misbehave(behaviour{status: 500}), ruleUndelivered},
	brokenPushes[1].Name: {misbehave(behaviour{status: 500}), ruleUndelivered},
	brokenPushes[2].Name: {misbehave(behaviour{status: 500}), ruleAgain},
	brokenPushes[3].Name: {misbehave(behaviour{status: 500}), ruleID},
	brokenPushes[4].Name: {
		func(w *world, span time.Duration) { loseUpstreamAgainAndAgain(w, 4*span) }, ruleID,
	},
	brokenPushes[5].Name: {misbehave(behaviour{status: 500}), ruleOrder},
	brokenPushes[6].Name: {nothing, ruleUndelivered},
	brokenPushes[7].Name: {nothing, ruleFinal},
	brokenPushes[8].Name: {nothing, ruleUndelivered},

	// Few pushes go each of the two ways.
	brokenEndpoints[0].Name: {
		func(w *world, span time.Duration) { misbehave(behaviour{proxy: 0.5})(w, 4*span) }, ruleUndelivered,
	},
	brokenEndpoints[1].Name: {
		func(w *world, span time.Duration) { misbehave(behaviour{proxy: 0.5})(w, 4*span) }, ruleUndelivered,
	},
	brokenEndpoints[2].Name: {misbehave(behaviour{broken: 0.3}), ruleUndelivered},
	brokenEndpoints[3].Name: {misbehave(behaviour{broken: 0.3}), ruleAgain},

	brokenRate.Name: {
		func(w *world, span time.Duration) { nothing(w, 4*span) }, ruleRate,
	},

	brokenReplays[0].Name: {nothing, ruleUndelivered},
	brokenReplays[1].Name: {pileUp, ruleReplayOrder},
	brokenReplays[2].Name: {nothing, ruleAgain},
	brokenReplays[3].Name: {nothing, ruleUnmarked},
	brokenReplays[4].Name: {nothing, ruleUndelivered},

	brokenHandOvers[0].Name: {restartUpstream, ruleOpen},
	brokenHandOvers[1].Name: {nothing, ruleKey},
	brokenHandOvers[2].Name: {nothing, ruleUntrue},
	brokenHandOvers[3].Name: {nothing, ruleTooOften},
}

func brokenBuilds() []harness.BrokenScript {
	return slices.Concat(harness.BrokenScripts, []harness.BrokenScript{brokenSign, brokenRate}, brokenPushes,
		brokenEndpoints, brokenReplays, brokenHandOvers)
}

// TestEveryBrokenBuildCanBeMade holds that the code still has what is broken in each of them. They are built in the
// long form only, which nobody may run for days.
func TestEveryBrokenBuildCanBeMade(t *testing.T) {
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range brokenBuilds() {
		if _, err := (patch{b.File, b.Old, b.New}).apply(filepath.Join(root, b.File)); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
}

// TestTheCheckerCatchesBrokenBuilds has the world run on builds of Reveille in each of which one thing is wrong. It is
// run by make fault; FAULT_SCENARIO picks among them as well. The broken scripts are those that the property test finds
// in its short form.
func TestTheCheckerCatchesBrokenBuilds(t *testing.T) {
	if os.Getenv("FAULT_MINUTES") == "" {
		t.Skip("takes long: make fault runs it")
	}
	only, err := regexp.Compile("(?i)" + os.Getenv("FAULT_SCENARIO"))
	if err != nil {
		t.Fatalf("FAULT_SCENARIO: %v", err)
	}
	for _, b := range brokenBuilds() {
		how, there := caught[b.Name]
		if !there {
			t.Errorf("nothing says how this is caught: %s", b.Name)
		}
		if !there || !only.MatchString(b.Name) {
			continue
		}
		t.Run(strings.ReplaceAll(b.Name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			o := options{binary: buildPatched(t, b.Name, patch{b.File, b.Old, b.New})}
			if slices.Contains(brokenHandOvers, b) {
				o.targets = 2
			}
			w := newWorld(t, chosenSeed(t), o)
			stop := w.load()
			how.faults(w, shortSpan)
			w.revive()
			stop()
			v := w.settle(brokenSettle)
			if !slices.ContainsFunc(v.Violations, func(x violation) bool { return x.Rule == how.want }) {
				t.Errorf("the checker found %v in %d events and %d wakes, want also %q", v.Violations, v.Events,
					v.Wakes, how.want)
			}
		})
	}
}
