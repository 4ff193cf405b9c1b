package fsm

import "time"

// PreviousSecret is the secret that a subscription had before its present one; the zero value if none still signs.
type PreviousSecret struct {
	Secret string
	// Until is when it stops signing, by the store's clock.
	Until time.Time
}

// At returns the secret if it signs at a time, otherwise "".
func (p PreviousSecret) At(now time.Time) string {
	if !now.Before(p.Until) {
		return ""
	}
	return p.Secret
}

// Unexpired returns p while it still signs, otherwise the zero value.
func (p PreviousSecret) Unexpired(now time.Time) PreviousSecret {
	if p.At(now) == "" {
		return PreviousSecret{}
	}
	return p
}

// RotationOverlap is a Rotation's Overlap unless an operator asks for another one.
const RotationOverlap = 24 * time.Hour

// Rotation gives a subscription a new secret.
type Rotation struct {
	// Random has the random bytes that the new secret is made from.
	Random []byte
	// Overlap is how long the present secret goes on signing beside the new one.
	Overlap time.Duration
	// KeepPrevious keeps the previous secret instead, if it still signs. A caller needs it after losing the answer with
	// the present secret, which no receiver knows.
	KeepPrevious bool
}

// Rotate returns a subscription with a new secret. The same Rotation again changes nothing, because a store may have
// done it without knowing.
func (s Subscription) Rotate(r Rotation, now time.Time) Subscription {
	secret := s.Signature.NewSecret(r.Random)
	if secret == s.Secret {
		return s
	}
	known := s.Secret
	if previous := s.Previous.At(now); r.KeepPrevious && previous != "" {
		known = previous
	}
	s.Secret, s.Previous = secret, PreviousSecret{}
	if r.Overlap > 0 {
		s.Previous = PreviousSecret{Secret: known, Until: time.UnixMilli(now.Add(r.Overlap).UnixMilli())}
	}
	return s
}
