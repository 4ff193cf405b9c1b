package redisstore_test

import (
	"testing"
	"time"

	"reveille/fsm"
	"reveille/redisstore"
)

func TestThatTheRegistryWasReadToItsEndIsStored(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w, other := open(t, server.URL, 4), open(t, server.URL, 4)
	if read, err := w.RegistryRead(t.Context()); err != nil || read {
		t.Fatal(read, err)
	}
	if err := w.SetRegistryRead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if read, err := other.RegistryRead(t.Context()); err != nil || !read {
		t.Fatal(read, err)
	}
}

// A position of one incarnation is none of another one, though both have the same offset.
func TestThePlaceInTheRegistryMovesWithItsMark(t *testing.T) {
	t.Parallel()
	w := open(t, redisstore.EmptyRedis(t).URL, 4)
	begun := time.Now().Add(-time.Minute) // its clock is about the server's
	place := func() fsm.RegistryPlace {
		t.Helper()
		p, err := w.RegistryPlace(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := place(); p != (fsm.RegistryPlace{Offset: fsm.Start}) {
		t.Errorf("it begins at %+v", p)
	}
	at := func(o fsm.Offset, mark string) fsm.RegistryPlace { return fsm.RegistryPlace{Offset: o, Mark: mark} }
	for _, move := range []struct {
		from, to fsm.RegistryPlace
		anew     bool
		want     bool
	}{
		{at("11", ""), at("12", "m"), false, false},
		{at(fsm.Start, "m"), at("12", "m"), false, false},
		{at(fsm.Start, ""), at("12", "m"), false, true},
		{at(fsm.Start, ""), at("13", "m"), false, false},
		{at("12", "another"), at("13", "another"), true, false},
		{at("12", "m"), at(fsm.Start, "another"), true, true},
		{at("12", "m"), at("13", "m"), false, false},
	} {
		was := place()
		moved, err := w.MoveRegistry(t.Context(), move.from, move.to, move.anew)
		if err != nil || moved != move.want {
			t.Errorf("from %v to %v: moved %v, %v", move.from, move.to, moved, err)
		}
		now, want := place(), was
		if move.want {
			want = move.to
		}
		want.Since = now.Since
		began := move.want && move.anew
		if now != want || !began && now.Since != was.Since || began && !now.Since.After(begun) {
			t.Errorf("from %v to %v: it is at %+v", move.from, move.to, now)
		}
	}
}
