package token

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// TestFingerprintsTellKeysApart holds that equal keys have equal ones, in the order of the keys, and
// that none holds its key.
func TestFingerprintsTellKeysApart(t *testing.T) {
	one, two := strings.Repeat("a", MinKey), strings.Repeat("b", MinKey)
	prints := func(keys ...string) []string {
		tokens, err := New(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return tokens.Fingerprints()
	}
	both := prints(one, two)
	if both[0] == both[1] || !slices.Equal(prints(two, one), []string{both[1], both[0]}) ||
		!slices.Equal(prints(one), both[:1]) {
		t.Errorf("the fingerprints are %v", both)
	}
	for _, p := range both {
		if len(p) != 8 || strings.Contains(one+two, p) {
			t.Errorf("fingerprint %q", p)
		}
	}
}

func TestATokenIsWhatTheLibraryMakesOfItsClaims(t *testing.T) {
	key, now := strings.Repeat("k", MinKey), time.Now()
	tokens, err := New(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, consumer := range []string{"s:%2Fa", `s:"<é>&`} {
		want, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
			Generation: "g1", Epoch: 1 << 40,
			RegisteredClaims: jwt.RegisteredClaims{Subject: consumer, ExpiresAt: jwt.NewNumericDate(now.Add(TTL))},
		}).SignedString(tokens.mint)
		if got := tokens.Mint(consumer, "g1", 1<<40, now); err != nil || got != want {
			t.Errorf("minted %s, want %s (%v)", got, want, err)
		}
	}
}

func TestTokens(t *testing.T) {
	key, old := strings.Repeat("k", MinKey), strings.Repeat("o", MinKey)
	tokens, err := New(key, old)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Truncate(time.Second)
	minted := tokens.Mint("s:%2Fa", "g1", 7, now)
	if got, err := tokens.Parse(minted); err != nil || got != (Token{"s:%2Fa", "g1", 7, now.Add(TTL)}) {
		t.Errorf("parsed %+v, %v", got, err)
	}
	before, _ := New(old)
	if _, err := tokens.Parse(before.Mint("s:%2Fa", "g1", 7, now)); err != nil {
		t.Errorf("a token of the older key was refused: %v", err)
	}
	if _, err := before.Parse(minted); !errors.Is(err, ErrInvalid) {
		t.Error("a token of another key was accepted")
	}
	if got, err := tokens.Parse(tokens.Mint("s:%2Fa", "g1", 7, now.Add(-2*TTL))); err != nil ||
		got.Expires.After(now) {
		t.Errorf("an expired token: %+v, %v; its expiry is the caller's to judge", got, err)
	}
	unsigned, err := jwt.NewWithClaims(jwt.SigningMethodNone,
		jwt.MapClaims{"sub": "s:%2Fa", "exp": now.Add(time.Hour).Unix()}).
		SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	header, rest, _ := strings.Cut(minted, ".")
	claims, signature, _ := strings.Cut(rest, ".")
	decoded, err := base64.RawURLEncoding.DecodeString(claims)
	if err != nil {
		t.Fatal(err)
	}
	later := base64.RawURLEncoding.EncodeToString(bytes.Replace(decoded, []byte(`"exp":1`), []byte(`"exp":9`), 1))
	if later == claims {
		t.Fatal("the token's claims do not look as this test assumes")
	}
	none, _, _ := strings.Cut(unsigned, ".")
	flipped := []byte(minted)
	flipped[len(flipped)/2] ^= 1
	for name, bad := range map[string]string{
		"empty": "", "cut short": minted[:len(minted)-5], "a part": strings.Split(minted, ".")[1],
		"changed":         string(flipped),
		"of later claims": header + "." + later + "." + signature, "without a signature": header + "." + claims,
		"with an empty signature": header + "." + claims + ".", "twice": minted + " " + minted,
		"of another algorithm": none + "." + claims + "." + signature, "with more at the end": minted + "x",
		"unsigned": unsigned, "huge": strings.Repeat("a", 1<<20), "with a line break": minted[:10] + "\n" + minted[10:],
	} {
		if _, err := tokens.Parse(bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("a token that is %s was accepted", name)
		}
	}
	for _, short := range []string{"", strings.Repeat("secret", 5)} {
		if _, err := New(key, short); err == nil || (short != "" && strings.Contains(err.Error(), short)) {
			t.Errorf("a key of %d bytes: %v", len(short), err)
		}
	}
}
