package tailer

import (
	"strings"
	"testing"
)

// mendedFaults are histories that once went wrong, found by the model.
var mendedFaults = map[string][]modelStep{
	"a write that was on its way while its stream was forgotten counts as there before the next one": {
		{Kind: "create", Replica: 1, Wait: 3000},
		{Kind: "subscribe", Wait: 3000},
		{Kind: "append", Replica: 1, N: 2, Wait: 100},
		{Kind: "forget", Replica: 1, Wait: 600},
		{Kind: "append", Wait: 3000},
	},
	"a write without an answer that was on its way while its stream was forgotten does, too": {
		{Kind: "create", Replica: 1, Wait: 3000},
		{Kind: "subscribe", Wait: 3000},
		{Kind: "unanswered", Replica: 1, N: 2, Wait: 100},
		{Kind: "forget", Replica: 1, Wait: 600},
		{Kind: "append", Wait: 3000},
	},
	"a consumer whose attempt failed is removed after an outage without another attempt": {
		{Kind: "subscribe", Wait: 3000},
		{Kind: "fail"},
		{Kind: "create", Wait: 3000},
		{Kind: "outage"},
	},
	"an event past the gateway while the backfill waits for a HEAD counts as there before": {
		{Kind: "create", Wait: 3000},
		{Kind: "slow heads", N: 3},
		{Kind: "subscribe", Replica: 1, Wait: 700}, // its 201 is sent by then
		{Kind: "past", Wait: 3000},
	},
	"a name whose write never came about is remembered for ever, should nobody be subscribed to it": {
		{Kind: "crash", Path: 1, Wait: 700},
	},
	"the owner of a name's partition waits for ever for what another replica has forgotten": {
		{Kind: "subscribe", Sub: 1, Replica: 1, Wait: 20_000},
		{Kind: "refused", Path: 1, N: 4},
	},
	"a consumer that unsubscribed shortly after the store lost something is made again": {
		{Kind: "create", Path: 2, Wait: 20_000},
		{Kind: "lose"},
		{Kind: "subscribe", Wait: 700},
		{Kind: "append", Path: 2, Replica: 1, Wait: 700},
		{Kind: "leave", Path: 2, Wait: 100},
	},
	"a look from before the deletion of a stream that is not on record puts it there after": {
		{Kind: "create", Wait: 3000},
		{Kind: "subscribe", Wait: 3000},
		{Kind: "delete", N: 3, Wait: 1},
		{Kind: "create", Replica: 1, N: 3, Wait: 3000},
		{Kind: "delete", Replica: 1},
		{Kind: "create", Replica: 1, Wait: 3000},
	},
	"a write between a deletion and the look after it counts as the first that anybody has heard of the stream": {
		{Kind: "subscribe", Wait: 3000},
		{Kind: "create", Wait: 3000},
		{Kind: "slow heads", N: 4},
		{Kind: "delete", N: 3},
		{Kind: "fail", Wait: 100},
		{Kind: "create", Wait: 3000},
		{Kind: "quick heads"},
		{Kind: "append", Wait: 3000},
	},
	"a write between what the registry tells of a deletion and the look after it counts as the first, too": {
		{Kind: "registry", N: 2},
		{Kind: "subscribe", Wait: 3000},
		{Kind: "create", Wait: 20_000},
		{Kind: "delete past"},
		{Kind: "registry", N: 4},
		{Kind: "slow heads", N: 4},
		{Kind: "fail"},
		{Kind: "create", Wait: 2500},
		{Kind: "quick heads"},
		{Kind: "append", Wait: 3000},
	},
	"an event after a second client was answered for a subscription counts as there before its creator is": {
		{Kind: "create", Wait: 3000},
		{Kind: "slow heads", N: 3},
		{Kind: "subscribe", Wait: 100},
		{Kind: "subscribe again", Replica: 1, Wait: 100},
		{Kind: "append", Wait: 3000},
	},
	"a deletion that the registry tells of before the gateway does hides the next one from the registry's reader": {
		{Kind: "registry"},
		{Kind: "subscribe", Wait: 3000},
		{Kind: "create", Wait: 3000},
		{Kind: "delete", N: 3, Wait: 3000},
		{Kind: "create", Wait: 3000},
		{Kind: "delete past"},
		{Kind: "create past", Wait: 3000},
	},
	"a deletion that follows soon on another one of the same stream is taken for that one": {
		{Kind: "registry"},
		{Kind: "slow heads", N: 4},
		{Kind: "subscribe", Wait: 20_000},
		{Kind: "create past", Wait: 20_000},
		{Kind: "delete past"},
		{Kind: "create past", Wait: 3000},
		{Kind: "delete past"},
		{Kind: "create past", Wait: 20_000},
	},
	"a 404 from before the store was away removes consumers after it": {
		{Kind: "subscribe", Wait: 3000},
		{Kind: "create", Wait: 20_000},
		{Kind: "append", N: 2},
		{Kind: "store away", N: 1},
		{Kind: "lie", Wait: 100_000},
	},
	"a 404 of a proxy has a stream forgotten that took a write just before": {
		{Kind: "create", Path: 1, Sub: 0, Replica: 1, N: 0, Wait: 700},
		{Kind: "append", Path: 1, Sub: 0, Replica: 1, N: 3, Wait: 0},
		{Kind: "subscribe", Path: 1, Sub: 1, Replica: 0, N: 4, Wait: 0},
		{Kind: "delete", Path: 1, Sub: 0, Replica: 0, N: 2, Wait: 1},
		{Kind: "create", Path: 1, Sub: 1, Replica: 0, N: 2, Wait: 100},
		{Kind: "lie", Path: 0, Sub: 0, Replica: 0, N: 1, Wait: 0},
		{Kind: "create", Path: 1, Sub: 2, Replica: 0, N: 2, Wait: 0},
		{Kind: "lie", Path: 1, Sub: 0, Replica: 0, N: 0, Wait: 100000},
		{Kind: "lie", Path: 0, Sub: 0, Replica: 1, N: 0, Wait: 20000},
	},
	"a 404 ends the record of a stream because there was none before it was made": {
		{Kind: "subscribe", Sub: 1},
		{Kind: "append", Path: 1, Wait: 100_000}, // it is awaited from then on
		{Kind: "create", Path: 1, Wait: 100},
		{Kind: "slow heads", N: 3},
		{Kind: "subscribe", Replica: 1, Wait: 300},
		{Kind: "past", Path: 1, Wait: 700},
		{Kind: "lie", Wait: 3000},
	},
	"a stream that was made anew while its deletion was answered is forgotten at a word of a proxy": {
		{Kind: "create", Replica: 1, N: 4, Wait: 3000},
		{Kind: "append", N: 1, Wait: 1},
		{Kind: "subscribe", Replica: 1, Wait: 700},
		{Kind: "create", Replica: 1, N: 3, Wait: 700},
		{Kind: "create", Replica: 1, N: 3, Wait: 100},
		{Kind: "delete", N: 4, Wait: 101},
		{Kind: "lie", Wait: 700},
		{Kind: "create", Replica: 1, N: 3},
		{Kind: "append", N: 2, Wait: 20_000},
	},
	"a stream that was lost with the store's last second is only told again by the owner of its partition": {
		{Kind: "create", Path: 1},
		{Kind: "lose"},
		{Kind: "past", Path: 1},
		{Kind: "subscribe", Replica: 1, Wait: 3000},
		{Kind: "past", Path: 1, Wait: 3000},
	},
	"a registry that was made anew with its streams is read on from where the former one was": {
		{Kind: "registry"},
		{Kind: "subscribe", Wait: 3000},
		{Kind: "create", Wait: 3000},
		{Kind: "create past", Path: 1, Wait: 3000},
		{Kind: "restart", N: 2, Wait: 3000},
		{Kind: "past", Path: 1, Wait: 3000},
	},
	"a write whose answer comes after the deletion of its stream makes consumers for it": {
		{Kind: "subscribe", Wait: 3000},
		{Kind: "create", N: 3, Wait: 3000},
		{Kind: "delete", Wait: 3000},
	},
}

func TestHistoriesThatOnceWentWrong(t *testing.T) {
	for name, steps := range mendedFaults {
		t.Run(name, func(t *testing.T) {
			if faults := play(t, steps); len(faults) > 0 {
				t.Error(strings.Join(faults, "\n"))
			}
		})
	}
}
