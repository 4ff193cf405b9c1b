package fsm

import (
	"testing"
	"time"
)

// TestARotationOfTheSecret holds which secrets sign after one, and until when.
func TestARotationOfTheSecret(t *testing.T) {
	now := time.UnixMilli(1_790_000_000_000)
	made := SignatureHMAC.NewSecret([]byte("next"))
	overlapping := PreviousSecret{Secret: "first", Until: now.Add(time.Minute)}
	for _, tc := range []struct {
		name     string
		secret   string
		previous PreviousSecret
		rotation Rotation
		want     PreviousSecret
	}{
		{
			name: "the present one goes on for the overlap", secret: "first",
			rotation: Rotation{Overlap: time.Hour}, want: PreviousSecret{"first", now.Add(time.Hour)},
		},
		{name: "without an overlap it does not", secret: "first", rotation: Rotation{}},
		{
			name: "only two sign: the previous one does not any more", secret: "second", previous: overlapping,
			rotation: Rotation{Overlap: time.Hour}, want: PreviousSecret{"second", now.Add(time.Hour)},
		},
		{
			name: "an overlap of none ends that before", secret: "second", previous: overlapping,
			rotation: Rotation{KeepPrevious: true},
		},
		{
			name: "the previous one is kept instead of one that nobody knows", secret: "second", previous: overlapping,
			rotation: Rotation{Overlap: time.Hour, KeepPrevious: true},
			want:     PreviousSecret{"first", now.Add(time.Hour)},
		},
		{
			name: "there is none to keep", secret: "first", rotation: Rotation{Overlap: time.Hour, KeepPrevious: true},
			want: PreviousSecret{"first", now.Add(time.Hour)},
		},
		{
			name: "one that does not sign any more is not kept", secret: "second",
			previous: PreviousSecret{"first", now}, rotation: Rotation{Overlap: time.Hour, KeepPrevious: true},
			want: PreviousSecret{"second", now.Add(time.Hour)},
		},
		{
			name: "the same rotation again changes nothing", secret: made, previous: overlapping,
			rotation: Rotation{Overlap: time.Hour}, want: overlapping,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.rotation.Random = []byte("next")
			was := Subscription{ID: "s", Secret: tc.secret, Previous: tc.previous}.WithDefaults()
			got := was.Rotate(tc.rotation, now)
			if got.Secret != made || got.Previous != tc.want || !got.SameConfig(was) {
				t.Errorf("got %s and %+v, want %s and %+v", got.Secret, got.Previous, made, tc.want)
			}
		})
	}
}

func TestAPreviousSecretSignsUntilItsTime(t *testing.T) {
	until := time.UnixMilli(1_790_000_000_000)
	p := PreviousSecret{Secret: "first", Until: until}
	if got := p.At(until.Add(-time.Millisecond)); got != "first" {
		t.Errorf("before: %q", got)
	}
	if got := p.At(until); got != "" {
		t.Errorf("then: %q", got)
	}
	if got := (PreviousSecret{}).At(until); got != "" {
		t.Errorf("none: %q", got)
	}
}

func TestSubscriptionsWithOtherSecretsAreNotEqual(t *testing.T) {
	until := time.UnixMilli(1_790_000_000_000)
	sub := Subscription{ID: "s", Secret: "second", Previous: PreviousSecret{"first", until}}
	for name, change := range map[string]func(*Subscription){
		"the secret":          func(s *Subscription) { s.Secret = "third" },
		"the previous secret": func(s *Subscription) { s.Previous.Secret = "other" },
		"its time":            func(s *Subscription) { s.Previous.Until = until.Add(1) },
	} {
		other := sub
		if change(&other); sub.Equal(other) || !sub.SameConfig(other) {
			t.Errorf("with %s changed it is equal, or another configuration", name)
		}
	}
	if same := sub; !same.Equal(sub) {
		t.Error("it does not equal itself")
	}
}
