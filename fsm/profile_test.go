package fsm

import (
	"reflect"
	"testing"
	"time"
)

// TestAProfileIsReadAsItWasWritten holds the form that stores keep.
func TestAProfileIsReadAsItWasWritten(t *testing.T) {
	pushing := Subscription{
		Mode: ModePush, Timeout: 20 * time.Second, Retry: []time.Duration{10 * time.Second, time.Minute},
	}
	retrying := Subscription{Retry: pushing.Retry}
	unordered := pushing
	unordered.Ordering = OrderingNone
	for _, tc := range []struct {
		profile Profile
		text    string
	}{
		{Profile{}, ""},
		{Subscription{}.WithDefaults().Profile(), ""},
		{pushing.WithDefaults().Profile(), "35000,1,10000,60000"},
		{retrying.WithDefaults().Profile(), "45000,0,10000,60000"},
		{unordered.WithDefaults().Profile(), "35000,2,10000,60000"},
	} {
		got, err := ParseProfile(tc.text)
		same := reflect.DeepEqual(got, tc.profile) && got.IsZero() == (tc.text == "")
		if err != nil || !same || tc.profile.String() != tc.text {
			t.Errorf("%+v is written %q; %q is read as %+v, %v", tc.profile, tc.profile, tc.text, got, err)
		}
	}
	for _, text := range []string{"x", "1", "1,,2", "1,0,x", "1,3", "1,-1", "-1,0", "1,2,-1"} {
		if p, err := ParseProfile(text); err == nil {
			t.Errorf("%q is read as %+v", text, p)
		}
	}
}
