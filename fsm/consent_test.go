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
	c = c.ByKey(60, "used", now.Add(time.Hour))
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
	c := Consent{}.Asked(hookURL, sender, "first", now, now.Add(90*time.Minute))
	again := c.Asked(hookURL, sender, "second", now.Add(time.Minute), now.Add(2*time.Hour))
	anew := c.Asked(hookURL, sender, "second", now.Add(31*time.Minute), now.Add(2*time.Hour))
	other := c.Asked(hookURL, "other.example", "second", now, now.Add(2*time.Hour))
	used := c.ByKey(0, "text of the user", now)
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
		{"too late", c, "first", 90 * time.Minute, false},
		{"asked again soon", again, "first", time.Hour, true},
		{"asked again soon, with another", again, "second", 0, false},
		{"asked again later", anew, "first", 0, false},
		{"asked again later, with another", anew, "second", time.Hour, true},
		{"for another origin", other, "first", 0, false},
		{"used", used, "first", 0, false},
		{"used, by the text of the user", used, "text of the user", 0, false},
		{"used, and asked again", used.Asked(hookURL, sender, "second", now, now.Add(time.Hour)), "second", 0, true},
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
	none := ConsentAnswer{State: ConsentUnsupported, Reason: "405", Withheld: true}
	lost := ConsentAnswer{Lost: true, Reason: "refused"}
	later := ConsentAnswer{Lost: true, Reason: "429", RetryAfter: time.Hour}
	next := now.Add(ConsentFor)
	byHeader := asked(fresh.Answered(fresh, granted, next))
	byCallback := asked(fresh.ByKey(30, "used", next))
	doubted := byHeader
	for range ConsentDoubts - 1 {
		doubted = asked(doubted.Answered(doubted, silent, next))
	}
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
		{"nothing", fresh, silent, ConsentPending, 0, ConsentRetry},
		{"no OPTIONS", fresh, none, ConsentUnsupported, 0, ConsentRetry},
		{"no answer", fresh, lost, ConsentPending, 0, ConsentRetry},
		{"a withdrawal", byHeader, refused, ConsentRefused, 0, ConsentFor},
		{"nothing, after a yes", byHeader, silent, ConsentGranted, 120, ConsentRetry},
		{"nothing, again and again", doubted, silent, ConsentPending, 0, ConsentRetry << (ConsentDoubts - 1)},
		{"no answer, again and again", doubted, lost, ConsentGranted, 120, ConsentRetry << (ConsentDoubts - 1)},
		{"yes, after all", doubted, granted, ConsentGranted, 120, ConsentFor},
		{"no answer for now", fresh, later, ConsentPending, 0, time.Hour},
		{"no answer, after a yes", byHeader, lost, ConsentGranted, 120, ConsentRetry},
		{"nothing, after a callback", byCallback, silent, ConsentGranted, 30, ConsentFor},
		{"a withdrawal, after a callback", byCallback, refused, ConsentRefused, 0, ConsentFor},
	} {
		got := tt.c.Answered(tt.c, tt.a, next)
		if got.State != tt.state || got.Rate != tt.rate || !got.Until.Equal(now.Add(tt.until)) ||
			(got.Reason == "") != (got.State == ConsentGranted) {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
	// What has happened since counts.
	consented := fresh.ByKey(30, "used", next)
	later1 := fresh.Asked(hookURL, sender, "other", now.Add(time.Second), next)
	for _, c := range []Consent{consented, later1} {
		if got := c.Answered(fresh, refused, next); !got.Equal(c) {
			t.Errorf("after a late answer: %+v", got)
		}
	}
	c := fresh
	for n, want := range []time.Duration{10, 20, 40, 80} {
		if c = asked(c).Answered(asked(c), lost, next); !c.Until.Equal(now.Add(want * time.Second)) {
			t.Errorf("after %d requests without an answer: %s", n+1, c.Until.Sub(now))
		}
	}
	if ConsentPause(1000, ConsentFor) != ConsentFor || ConsentPause(1000, ConsentRetryMax) != ConsentRetryMax {
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
