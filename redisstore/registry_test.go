package redisstore_test

import (
	"testing"

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
