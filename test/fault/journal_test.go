package fault

import (
	"strings"
	"sync"
	"time"

	"reveille/fsm"
)

// journal is what workers and writers saw and did, in the order in which they noted it. Nothing in it comes from
// Reveille but what it sent.
type journal struct {
	mu       sync.Mutex
	Arrivals []arrival
	Reads    []reading
	Calls    []*call
	Dones    []syncDone
	Appends  []written
	Pushes   []*pushed
	Letters  []letter
	Asks     []*ask
	Handed   []*handed
	Directs  []*direct
	Marks    []mark
}

// wakeRef names a wake.
type wakeRef struct {
	Consumer string
	Epoch    int64
	WakeID   string
}

// arrival is a webhook request that reached a worker.
type arrival struct {
	wakeRef
	// Offsets by path.
	Offsets map[string]fsm.Offset
	At      time.Time
	// Forged is set if the signature was not made with the subscription's secret. One that is merely too old is the
	// sender's clock, and the worker has refused it.
	Forged string
}

// reading is one answer of the stream server to a worker.
type reading struct {
	wakeRef
	Path     string
	From, To fsm.Offset
	Events   []string
	At       time.Time
}

// call is a callback, with all of its repetitions.
type call struct {
	wakeRef
	Claim bool
	Acks  map[string]fsm.Offset
	Done  bool
	// Contradicted says that one of the acks lies beyond the tail that the stream server's own HEAD told just before,
	// past all links: the reference server can be read beyond that until an append is on its disk, and after one that
	// was interrupted until it is restarted. Such an ack may rightly be refused.
	Contradicted bool
	Tries        []try
}

// What became of a try, besides the error codes of the callback API.
const (
	unknown  = ""
	accepted = "OK"
)

// try is one request of a callback.
type try struct {
	Sent, Answered time.Time
	// Code is accepted, an error code, or unknown if there was no answer or one that says to try again.
	Code string
	// Offsets that a success told, by path.
	Offsets map[string]fsm.Offset
}

// accepted returns the try that succeeded, or nil.
func (c *call) accepted() *try {
	for i := range c.Tries {
		if c.Tries[i].Code == accepted {
			return &c.Tries[i]
		}
	}
	return nil
}

// refused says whether every try was answered with a refusal, so that it cannot have had an effect.
func (c *call) refused() bool {
	for _, t := range c.Tries {
		if t.Code == accepted || t.Code == unknown {
			return false
		}
	}
	return true
}

// syncDone is an answer {"done":true} to a webhook request.
type syncDone struct {
	wakeRef
	At time.Time
}

// written is an append. What is not known to have failed may exist.
type written struct {
	Path, Event string
	Sent        time.Time
	OK          bool
}

type markKind int

const (
	// redisLost spans the changes that Redis has lost.
	redisLost markKind = iota
	// missing spans a time in which upstream said that streams are gone, maybeGone that and the time in which Reveille
	// may go by it.
	missing
	maybeGone
	// answersLost spans a time in which what a receiver answered may not have been noted in Redis: a replica died or
	// stood still, or one of its connections to Redis or to receivers was broken.
	answersLost
)

// mark is a time in which a fault excuses something.
type mark struct {
	Kind     markKind
	From, To time.Time
}

func (j *journal) note(f func(j *journal)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(j)
}

func (j *journal) arrived(a arrival) {
	j.note(func(j *journal) { j.Arrivals = append(j.Arrivals, a) })
}

func (j *journal) read(r reading) { j.note(func(j *journal) { j.Reads = append(j.Reads, r) }) }

func (j *journal) answeredDone(d syncDone) { j.note(func(j *journal) { j.Dones = append(j.Dones, d) }) }

func (j *journal) appended(w written) { j.note(func(j *journal) { j.Appends = append(j.Appends, w) }) }

func (j *journal) mark(kind markKind, from, to time.Time) {
	j.note(func(j *journal) { j.Marks = append(j.Marks, mark{kind, from, to}) })
}

// began notes a callback before its first try is sent.
func (j *journal) began(c *call) { j.note(func(j *journal) { j.Calls = append(j.Calls, c) }) }

// tried notes a try. It is noted as soon as it is sent, with what became of it unknown, and settled later.
func (j *journal) tried(c *call) (settle func(code string, offsets map[string]fsm.Offset)) {
	var i int
	j.note(func(*journal) {
		i = len(c.Tries)
		c.Tries = append(c.Tries, try{Sent: time.Now()})
	})
	return func(code string, offsets map[string]fsm.Offset) {
		j.note(func(*journal) {
			c.Tries[i].Answered, c.Tries[i].Code, c.Tries[i].Offsets = time.Now(), code, offsets
		})
	}
}

// copy returns the journal as it stands, for reading while it is written on.
func (j *journal) copy() *journal {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := &journal{
		Arrivals: append([]arrival(nil), j.Arrivals...), Reads: append([]reading(nil), j.Reads...),
		Dones: append([]syncDone(nil), j.Dones...), Appends: append([]written(nil), j.Appends...),
		Marks: append([]mark(nil), j.Marks...), Letters: append([]letter(nil), j.Letters...),
	}
	for _, k := range j.Calls {
		d := *k
		d.Tries = append([]try(nil), k.Tries...)
		c.Calls = append(c.Calls, &d)
	}
	for _, p := range j.Pushes {
		c.Pushes = append(c.Pushes, new(*p))
	}
	for _, a := range j.Asks {
		c.Asks = append(c.Asks, new(*a))
	}
	for _, h := range j.Handed {
		d := *h
		d.Requests = append([]handing(nil), h.Requests...)
		c.Handed = append(c.Handed, &d)
	}
	for _, d := range j.Directs {
		c.Directs = append(c.Directs, new(*d))
	}
	return c
}

// primaryOf is the stream that a consumer is of. The paths of these tests have nothing in them that needs encoding but
// "/".
func primaryOf(consumer string) string {
	_, path, _ := strings.Cut(consumer, ":")
	return strings.ReplaceAll(path, "%2F", "/")
}
