package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"reveille/fsm"
	"reveille/test/harness"
)

// TestConsumersThatGo holds when a consumer is removed (webhook spec, Garbage Collection). Each of them is subscribed
// to a second stream too.
func TestConsumersThatGo(t *testing.T) {
	hold(t, []rule{
		{"one that is waking goes with its primary stream, deleted through the gateway", func(t *testing.T, e *env) {
			s, wake := e.waking(t)
			second := s.folder + "-second/stream"
			s.streams.Create(second)
			// A callback that claims nothing leaves the consumer waking.
			s.callback(wake, harness.Callback{Epoch: wake.Epoch, Subscribe: []string{second}})
			s.gateway.DeleteStream(s.path)
			s.removed(wake, second)
		}},
		{"a callback finds the primary stream deleted behind the gateway's back", func(t *testing.T, e *env) {
			s, wake := e.live(t)
			s.streams.DeleteStream(s.path)
			s.gone(wake)
		}},
		{
			"one that is idle is hidden when its primary stream is deleted behind the gateway's back",
			func(t *testing.T, e *env) {
				s, wake := e.live(t)
				second, _ := s.subscribes(wake)
				s.callback(wake, wake.Claim(true, s.ack(s.streams.Tail(s.path))))
				s.streams.DeleteStream(s.path)
				s.await("hidden", func(c fsm.Consumer) bool { return !c.HiddenAt.IsZero() && !c.Deadline.IsZero() })
				s.gone(wake)
				// Its other streams do not wake it meanwhile.
				s.streams.Append(second, `"for nobody"`)
				s.awaitTail(second, s.streams.Tail(second))
				if c := s.consumer(); c.State != fsm.Idle || c.Epoch != wake.Epoch {
					t.Errorf("it was woken: %+v", c)
				}
			},
		},
		{"one of which another stream is deleted stays", func(t *testing.T, e *env) {
			s, wake := e.live(t)
			second, _ := s.subscribes(wake)
			s.gateway.DeleteStream(second)
			s.callback(wake, harness.Callback{Epoch: wake.Epoch})
			tail := s.append()
			s.callback(wake, wake.Claim(true, s.ack(tail)))
			s.append()
			s.next(wake, s.worker.Wake(2), s.ack(tail))
		}},
		{"a stream made anew has a new consumer, which begins at its start with a higher epoch", madeAnew},
		{"the subscription takes all its consumers with it, and none of another's", deletedSubscription},
		{"a subscription made anew under its ID has new consumers, with higher epochs", func(t *testing.T, e *env) {
			s, wake := e.live(t)
			old := s.consumer().Generation
			s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
			s.subscribe(s.sub.Pattern)
			// On a slow machine it may begin before the tail and be woken for that.
			c := s.await("consumer made anew", func(c fsm.Consumer) bool { return c.Generation != old })
			tail := c.Links[s.path].Acked.Value()
			s.gone(wake)
			s.append()
			second := s.worker.Wake(2)
			s.wantPayload(second, second.Epoch, []harness.StreamOffset{s.ack(tail)}, s.path)
			if second.Epoch <= wake.Epoch {
				t.Errorf("epoch %d came after %d", second.Epoch, wake.Epoch)
			}
			s.gone(wake)
			s.refused(wake, second.Claim(true), fsm.CodeConsumerGone)
		}},
		{"one that unsubscribes from all is answered without streams, and goes", func(t *testing.T, e *env) {
			s, wake := e.live(t)
			second, _ := s.subscribes(wake)
			both := []string{s.path, second}
			a := s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: both, Done: true})
			s.wantStreams(a)
			if !strings.Contains(a.Body, `"streams":[]`) || a.Token == "" {
				t.Errorf("the answer is %s, want a token and \"streams\":[]", a.Body)
			}
			s.removed(wake, second)
		}},
		{"one that is idle goes, too, when it unsubscribes from all", func(t *testing.T, e *env) {
			s, wake := e.live(t)
			second, _ := s.subscribes(wake)
			s.callback(wake, wake.Claim(true, s.ack(s.streams.Tail(s.path))))
			for _, path := range []string{second, s.path} {
				s.callback(wake, harness.Callback{Epoch: wake.Epoch, Unsubscribe: []string{path}})
			}
			s.removed(wake, second)
		}},
	})
}

func madeAnew(t *testing.T, e *env) {
	s, wake := e.live(t)
	second, _ := s.subscribes(wake)
	s.gateway.DeleteStream(s.path)
	s.removed(wake, second)
	s.gateway.Create(s.path)
	anew := s.worker.Wake(2)
	s.wantPayload(anew, anew.Epoch, []harness.StreamOffset{s.ack("-1")}, s.path)
	if anew.Epoch <= wake.Epoch {
		t.Errorf("epoch %d was followed by %d", wake.Epoch, anew.Epoch)
	}
	// The old one's wakes are those of an earlier epoch now.
	s.refused(wake, wake.Claim(true), fsm.CodeStaleEpoch)
	s.refused(wake, anew.Claim(true), fsm.CodeStaleEpoch)
	s.callback(anew, anew.Claim(false))
}

func deletedSubscription(t *testing.T, e *env) {
	s, wake := e.live(t)
	second, _ := s.subscribes(wake)
	other := e.empty(t)
	other.path, other.folder = s.path, s.folder
	other.subscribe(s.folder + "/*")
	more := []string{s.folder + "/b", s.folder + "/c"}
	s.made(more)
	for _, path := range more {
		s.wake(path, 1)
		other.wake(path, 1)
	}
	s.gateway.DeleteSubscription(s.sub.Pattern, s.sub.ID)
	s.removed(wake, second)
	for _, path := range more {
		w := s.wake(path, 1)
		s.gone(w)
		if c, err := s.read(path); !errors.Is(err, fsm.ErrNotFound) {
			t.Errorf("there is still %+v (%v)", c, err)
		}
		w = other.wake(path, 1)
		other.callback(w, w.Claim(true))
		w = other.wake(path, 2) // the later wakes come to it alone
		other.callback(w, w.Claim(true, at(path, other.streams.Tail(path))))
		if n := len(s.wakes(path)); n != 1 {
			t.Errorf("the deleted one was woken %d times for %s", n, path)
		}
	}
}

// globs are patterns below a folder, and which of all the streams here they match (webhook spec, Glob Patterns). The
// tests of fsm have every case of a pattern.
var globs = []struct {
	pattern string
	matches []string
}{
	{"/**", []string{
		"/agents", "/agents/task-1", "/agents/Task-1", "/agents/a%2Fb", "/agents/w/inbox", "/agents/w/x/inbox",
		"/other",
	}},
	{"/agents/*", []string{"/agents/task-1", "/agents/Task-1", "/agents/a%2Fb"}},
	{"/agents/%2A/inbox", []string{"/agents/w/inbox"}},
	{"/agents/**/inbox", []string{"/agents/w/inbox", "/agents/w/x/inbox"}},
	{"/agents/%2a%2A", []string{
		"/agents", "/agents/task-1", "/agents/Task-1", "/agents/a%2Fb", "/agents/w/inbox", "/agents/w/x/inbox",
	}},
	{"/agents/Task-1", []string{"/agents/Task-1"}},
}

// TestNames holds which streams a subscription is woken for, and that a stream may have an unusual name.
func TestNames(t *testing.T) {
	hold(t, []rule{
		{"a subscription is woken for the streams that come later and match its pattern", func(t *testing.T, e *env) {
			matched(t, e, false)
		}},
		{"a subscription is woken for the streams that are there and match its pattern", func(t *testing.T, e *env) {
			matched(t, e, true)
		}},
		{"an unusual name is the same in every place, over a whole life cycle", unusual},
	})
}

// matched has every stream linked to the first pattern. One script does that for all of the subscriptions that match,
// so those that do not have it then do not match.
func matched(t *testing.T, e *env, there bool) {
	s := e.empty(t)
	s.worker.AnswerDone()
	var streams []string
	for _, path := range globs[0].matches {
		streams = append(streams, s.folder+path)
	}
	if there {
		s.made(streams)
	}
	subs := make([]*fixture, len(globs))
	for i, glob := range globs {
		sub := e.fixture(t, s.sub.ID+"-"+string(rune('a'+i)), s.worker)
		sub.subscribe(s.folder + glob.pattern)
		harness.Eventually(t, soon, "the backfill is over", harness.True(func() bool {
			got, ok := s.gateway.Subscription(sub.sub.ID)
			return ok && got.Backfill == nil
		}, "it goes on"))
		subs[i] = sub
	}
	if there {
		for _, path := range streams {
			s.gateway.Append(path, `{"event":"later"}`)
		}
	} else {
		s.made(streams)
	}
	for i, glob := range globs {
		for j, path := range streams {
			name := globs[0].matches[j]
			if !slices.Contains(glob.matches, name) {
				if c, err := subs[i].read(path); !errors.Is(err, fsm.ErrNotFound) {
					t.Errorf("%s has a consumer of %s: %+v (%v)", glob.pattern, name, c, err)
				}
				continue
			}
			harness.Eventually(t, soon, glob.pattern+" is woken for "+name, harness.True(func() bool {
				return slices.ContainsFunc(s.worker.Wakes(), func(w harness.Wake) bool {
					return w.ConsumerID == fsm.ConsumerID(subs[i].sub.ID, path)
				})
			}, "it is not"))
		}
	}
}

// unusual holds that the consumer's ID encodes the path as JavaScript's encodeURIComponent does, that the callback's
// URL holds it raw (webhook spec, Consumer Instance), and that the path is one wherever it stands.
func unusual(t *testing.T, e *env) {
	s := e.subscribed(t)
	for _, tt := range []struct{ name, segment, encoded string }{
		{"an encoded slash is part of its segment", "a%2Fb", "a%252Fb"},
		{"spaces", "two%20words%20", "two%2520words%2520"},
		{"unicode", "%C3%BC%E2%98%83", "%25C3%25BC%25E2%2598%2583"},
		{"dots", "v1.2...", "v1.2..."},
		{"dots that look like more", "...", "..."},
		{"what encodeURIComponent leaves alone", "-_.!~'()", "-_.!~'()"},
		{
			"what a path may hold and encodeURIComponent encodes", "a+b&c=d:e@f;g,h$i",
			"a%2Bb%26c%3Dd%3Ae%40f%3Bg%2Ch%24i",
		},
		{"a percent sign", "100%25", "100%2525"},
		{"a question mark and a number sign, encoded", "a%3Fb%23c", "a%253Fb%2523c"},
	} {
		s.path = s.folder + "/" + tt.segment
		s.gateway.Create(s.path)
		tail := s.gateway.Append(s.path, `{"event":true}`)
		wake := s.wake(s.path, 1)
		id := s.sub.ID + ":%2F" + strings.TrimPrefix(s.folder, "/") + "%2F" + tt.encoded
		if wake.ConsumerID != id || wake.Callback != s.rev.URL+"/callback/"+id {
			t.Errorf("%s: consumer_id %s, callback %s, want %s", tt.name, wake.ConsumerID, wake.Callback, id)
		}
		s.wantPayload(wake, wake.Epoch, []harness.StreamOffset{s.ack("-1")}, s.path)
		messages, next := s.streams.Read(wake.PrimaryStream, wake.Offset(wake.PrimaryStream))
		if len(messages) != 1 || next != tail {
			t.Fatalf("%s: read %s up to %s", tt.name, messages, next)
		}
		s.wantStreams(s.callback(wake, wake.Claim(true, s.ack(next))), s.ack(next))
		s.append()
		second := s.wake(s.path, 2)
		s.wantPayload(second, wake.Epoch+1, []harness.StreamOffset{s.ack(next)}, s.path)
		tool := s.folder + "-tools/" + tt.segment
		toolTail := s.streams.Create(tool)
		s.wantStreams(s.callback(second, harness.Callback{Epoch: second.Epoch, Subscribe: []string{tool}}),
			s.ack(next), at(tool, toolTail))
		s.gateway.DeleteStream(s.path)
		s.gone(second)
	}
}
