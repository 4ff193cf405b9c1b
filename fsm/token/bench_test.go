package token

import (
	"strings"
	"testing"
	"time"
)

func benchTokens(b *testing.B) *Tokens {
	t, err := New(strings.Repeat("k", MinKey))
	if err != nil {
		b.Fatal(err)
	}
	return t
}

const benchConsumer = "agent-handler:%2Fagents%2Ftask-123"

func BenchmarkMint(b *testing.B) {
	t, now := benchTokens(b), time.Now()
	for b.Loop() {
		t.Mint(benchConsumer, "5f3d9a0b1c2e4f60", 7, now)
	}
}

func BenchmarkParse(b *testing.B) {
	t := benchTokens(b)
	token := t.Mint(benchConsumer, "5f3d9a0b1c2e4f60", 7, time.Now())
	for b.Loop() {
		if _, err := t.Parse(token); err != nil {
			b.Fatal(err)
		}
	}
}
