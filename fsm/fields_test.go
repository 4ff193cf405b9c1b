package fsm

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

// state has what no PUT asks for. A PUT is not compared by it.
var state = []string{
	"ID", "Generation", "Owner", "Secret", "Previous.Secret", "Previous.Until", "CreatedAt", "Version", "Revision",
	"Told", "Paused", "Disabled", "PausedAt", "Retired", "OpenedAt",
	"Consent.State", "Consent.Origin", "Consent.Webhook", "Consent.Rate", "Consent.ByCallback", "Consent.AskedAt",
	"Consent.Until", "Consent.Failures", "Consent.Reason", "Consent.Key", "Consent.KeyUntil",
}

// TestEveryFieldOfASubscriptionIsCompared changes one after the other. A new one belongs into Fields, or into state and
// Equal.
func TestEveryFieldOfASubscriptionIsCompared(t *testing.T) {
	was := Subscription{}.WithDefaults()
	left := []string{"pattern"}
	for _, f := range Fields {
		left = append(left, f.Name)
	}
	now := was
	eachField("", reflect.ValueOf(&now).Elem(), func(path string, v reflect.Value) {
		before := reflect.ValueOf(v.Interface())
		change(t, path, v)
		names := was.differs(now)
		if slices.Contains(state, path) != (len(names) == 0) || len(names) > 1 || was.Equal(now) {
			t.Errorf("another %s: %q differ, equal is %t", path, names, was.Equal(now))
		}
		for _, name := range names {
			left = slices.DeleteFunc(left, func(l string) bool { return l == name })
		}
		v.Set(before)
	})
	if len(left) > 0 || !was.Equal(now) {
		t.Errorf("no field of a subscription belongs to %q", left)
	}
}

// eachField calls do with each field of a struct, and of the structs in it.
func eachField(path string, v reflect.Value, do func(string, reflect.Value)) {
	for i := range v.NumField() {
		f, at := v.Field(i), path+v.Type().Field(i).Name
		if f.Kind() == reflect.Struct && f.Type() != reflect.TypeFor[time.Time]() {
			eachField(at+".", f, do)
		} else {
			do(at, f)
		}
	}
}

func change(t *testing.T, path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("another")
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("another"), reflect.Zero(v.Type().Elem()))
	case reflect.Struct:
		v.Set(reflect.ValueOf(time.Unix(1, 0)))
	default:
		t.Fatalf("%s: this test cannot change a %s", path, v.Kind())
	}
}
