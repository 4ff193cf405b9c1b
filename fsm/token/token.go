// Package token has the callback tokens: what they say, and how they are signed and checked.
package token

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"reveille/fsm"
)

// TTL is how long a callback token is valid. The answer to a callback replaces a token with less than Refresh left
// (webhook spec, Callback Tokens).
const (
	TTL     = time.Hour
	Refresh = 15 * time.Minute
	// MinKey is the least length of a key in bytes.
	MinKey = 32
)

// ErrInvalid is the cause of an error about a token that is malformed or forged.
var ErrInvalid = errors.New("the callback token is malformed or its signature is wrong")

// Token is what a callback token says.
type Token struct {
	Consumer   string
	Generation string
	Epoch      int64
	Expires    time.Time
}

// Tokens mints and reads callback tokens: JWTs signed with HMAC-SHA256. It is safe for concurrent use.
type Tokens struct {
	mint   []byte
	verify jwt.VerificationKeySet
	parser *jwt.Parser
}

type claims struct {
	Generation string `json:"gen"`
	Epoch      int64  `json:"epoch"`
	jwt.RegisteredClaims
}

// New returns a Tokens that signs with the first key and accepts any of them. The error never holds a key.
func New(keys ...string) (*Tokens, error) {
	if len(keys) == 0 {
		return nil, errors.New("no token key")
	}
	t := &Tokens{
		// The caller judges the claims: an expired token of a consumer that is gone is answered with "gone".
		parser: jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}),
			jwt.WithoutClaimsValidation()),
	}
	for i, k := range keys {
		if len(k) < MinKey {
			return nil, fmt.Errorf("token key %d has %d bytes, at least %d are needed", i+1, len(k), MinKey)
		}
		// A key of any length becomes as long as one block, and the callback tokens' key is not the setting itself.
		sum := sha256.Sum256([]byte("reveille callback token\x00" + k))
		t.verify.Keys = append(t.verify.Keys, sum[:])
		if i == 0 {
			t.mint = sum[:]
		}
	}
	return t, nil
}

// Fingerprints tell keys from one another, in the order of the keys. Each is slow to compute, and so short that many
// keys have the same one. So a reader of a fingerprint can neither find the key nor be sure of a guess. Each call
// computes them.
func (t *Tokens) Fingerprints() []string {
	prints := make([]string, len(t.verify.Keys))
	for i, key := range t.verify.Keys {
		prints[i] = fingerprint(key.([]byte))
	}
	return prints
}

const (
	fingerprintRounds = 100_000
	fingerprintLen    = 4 // bytes
)

func fingerprint(key []byte) string {
	sum, err := pbkdf2.Key(sha256.New, string(key), []byte("reveille token key fingerprint"), fingerprintRounds,
		fingerprintLen)
	if err != nil {
		panic("reveille: deriving a fingerprint failed: " + err.Error()) // cannot happen: the key is a hash's sum
	}
	return hex.EncodeToString(sum)
}

// header begins every token. Every wake has a token of its own, so the library, which encodes the header anew for each,
// only reads tokens.
var header = base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "."

// Mint returns a token for one wake of one consumer.
func (t *Tokens) Mint(consumer, generation string, epoch int64, now time.Time) string {
	said, err := json.Marshal(struct {
		Generation string `json:"gen"`
		Epoch      int64  `json:"epoch"`
		Subject    string `json:"sub"`
		ExpiresAt  int64  `json:"exp"`
	}{generation, epoch, consumer, now.Add(TTL).Unix()})
	if err != nil {
		panic("reveille: a token cannot be encoded: " + err.Error()) // cannot happen: texts and numbers can be
	}
	text := base64.RawURLEncoding.AppendEncode([]byte(header), said)
	mac := hmac.New(sha256.New, t.mint)
	mac.Write(text)
	return string(base64.RawURLEncoding.AppendEncode(append(text, '.'), mac.Sum(nil)))
}

// Parse returns what a token says, expired or not, or ErrInvalid.
func (t *Tokens) Parse(token string) (Token, error) {
	if len(token) > 8*fsm.MaxPathLen || strings.ContainsAny(token, "\r\n") {
		return Token{}, ErrInvalid
	}
	var c claims
	_, err := t.parser.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return t.verify, nil })
	if err != nil || c.ExpiresAt == nil || c.Subject == "" {
		return Token{}, ErrInvalid
	}
	return Token{Consumer: c.Subject, Generation: c.Generation, Epoch: c.Epoch, Expires: c.ExpiresAt.Time}, nil
}
