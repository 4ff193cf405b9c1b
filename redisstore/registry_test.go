package redisstore_test

import (
	"testing"
	"time"

	"reveille/redisstore"
)

func TestWhenTheRegistryWasLastReadToItsEndIsStored(t *testing.T) {
	t.Parallel()
	server := redisstore.EmptyRedis(t)
	w, other := open(t, server.URL, 4), open(t, server.URL, 4)
	if seen, now, err := w.RegistrySeen(t.Context()); err != nil || !seen.IsZero() || !now.Equal(w.now) {
		t.Fatal(seen, now, err)
	}
	at := w.now.Add(-1234567 * time.Microsecond)
	if err := w.SeeRegistry(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if seen, _, err := other.RegistrySeen(t.Context()); err != nil || !seen.Equal(at) {
		t.Fatal(seen, err)
	}
}
