package fsm

import (
	"strings"
	"testing"
	"time"
)

const (
	hookURL = "https://example.com/hook"
	sender  = "reveille.example.com"
)

func TestAConsentIsForOneURLAndOneOrigin(t *testing.T) {
	now := time.Unix(1000, 0)
	c := Consent{}.Asked(hookURL, sender, "k", now, now.Add(time.Hour))
	if c.State != ConsentPending || c.Reason == "" {
		t.Errorf("once asked: %+v", c)
	}
	c = c.ByKey(60, "used")
	for _, tt := range []struct {
		webhook, origin string
		want            ConsentState
	}{
		{hookURL, sender, ConsentGranted},
		{hookURL + "?", sender, ConsentPending},
		{hookURL, "other.example.com", ConsentPending},
	} {
		got := c.About(tt.webhook, tt.origin)
		if got.State != tt.want || (got.Rate == 60) != (got.State == ConsentGranted) {
			t.Errorf("%s %s: %+v", tt.webhook, tt.origin, got)
		}
	}
	if got := (Consent{}).About(hookURL, sender); got.State != ConsentPending {
		t.Errorf("never asked: %+v", got)
	}
}

func TestAKeyOpensOnceAndExpires(t *testing.T) {
	now := time.Unix(1000, 0)
	c := Consent{}.Asked(hookURL, sender, "first", now, now.Add(time.Hour))
	again := c.Asked(hookURL, sender, "second", now.Add(time.Minute), now.Add(time.Hour))
	for _, tt := range []struct {
		name string
		c    Consent
		key  string
		at   time.Duration
		want bool
	}{
		{"in time", c, "first", 0, true},
		{"another key", c, "second", 0, false},
		{"no key", c, "", 0, false},
		{"its hash", c, c.Key, 0, false},
		{"too late", c, "first", time.Hour, false},
		{"replaced", again, "first", 0, false},
		{"the replacement", again, "second", 0, true},
		{"used", c.ByKey(0, "used"), "first", 0, false},
		{"used, without a key", c.ByKey(0, "used"), "", 0, false},
		{"never asked", Consent{}, "", 0, false},
	} {
		if got := tt.c.Opens(tt.key, now.Add(tt.at)); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

func TestWhatAnAnswerMakesOfAConsent(t *testing.T) {
	now := time.Unix(1000, 0)
	asked := func(c Consent) Consent { return c.Asked(hookURL, sender, "k", now, now.Add(ConsentFor)) }
	fresh := asked(Consent{})
	granted := ConsentAnswer{State: ConsentGranted, Rate: 120}
	refused := ConsentAnswer{State: ConsentRefused, Reason: "no"}
	silent := ConsentAnswer{State: ConsentPending, Reason: "silent", Withheld: true}
	lost := ConsentAnswer{Lost: true, Reason: "refused"}
	later := ConsentAnswer{Lost: true, Reason: "429", RetryAfter: time.Hour}
	byHeader := asked(fresh.Answered("k", granted))
	byCallback := asked(fresh.ByKey(30, "used"))
	for _, tt := range []struct {
		name  string
		c     Consent
		a     ConsentAnswer
		state ConsentState
		rate  int
		until time.Duration
	}{
		{"yes", fresh, granted, ConsentGranted, 120, ConsentFor},
		{"no", fresh, refused, ConsentRefused, 0, ConsentFor},
		{"nothing", fresh, silent, ConsentPending, 0, ConsentFor},
		{"no answer", fresh, lost, ConsentPending, 0, ConsentRetry},
		{"a withdrawal", byHeader, refused, ConsentRefused, 0, ConsentFor},
		{"nothing, after a yes", byHeader, silent, ConsentPending, 0, ConsentFor},
		{"no answer for now", fresh, later, ConsentPending, 0, time.Hour},
		{"no answer, after a yes", byHeader, lost, ConsentGranted, 120, ConsentRetry},
		{"nothing, after a callback", byCallback, silent, ConsentGranted, 30, ConsentFor},
		{"a withdrawal, after a callback", byCallback, refused, ConsentRefused, 0, ConsentFor},
		{"no, though the callback has come since", fresh.ByKey(30, "used"), refused, ConsentGranted, 30, ConsentFor},
	} {
		got := tt.c.Answered("k", tt.a)
		if got.State != tt.state || got.Rate != tt.rate || !got.Until.Equal(now.Add(tt.until)) ||
			(got.Reason == "") != (got.State == ConsentGranted) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	if got := fresh.Answered("another", granted); got.State != ConsentPending {
		t.Errorf("an answer to an earlier request: %+v", got)
	}
	c := fresh
	for n, want := range []time.Duration{10, 20, 40, 80} {
		if c = asked(c).Answered("k", lost); !c.Until.Equal(now.Add(want * time.Second)) {
			t.Errorf("after %d requests without an answer: %s", n+1, c.Until.Sub(now))
		}
	}
	if ConsentPause(1000) != ConsentRetryMax {
		t.Error("the pause has no end")
	}
}

func TestWhatIsADNSName(t *testing.T) {
	for text, want := range map[string]bool{
		"a.example.com": true, "localhost": true, "A-1.Example": true, "1a.2b": true, "": false, ".": false,
		"a.":   false,
		"a..b": false, "-a.b": false, "a-.b": false, "a_b.c": false, "127.0.0.1": false, "::1": false, "a:80": false,
		"https://a.b": false, "a b": false, "*": false, strings.Repeat("a", 64): false,
	} {
		if IsDNSName(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}
