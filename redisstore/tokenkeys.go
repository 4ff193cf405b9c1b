package redisstore

import (
	"context"
	"time"
)

// noteTokenKeys stores which token keys this replica has, for as long as it counts as alive. It returns true if another
// replica has one of them, or if there is no other replica. Without keys it always returns true. A key that no live
// replica has is forgotten.
func (s *Store) noteTokenKeys(ctx context.Context, ttl time.Duration) (shared bool, err error) {
	if len(s.opts.TokenKeys) == 0 {
		return true, nil
	}
	args := []any{s.opts.ReplicaID, ttl.Milliseconds()}
	for _, fingerprint := range s.opts.TokenKeys {
		args = append(args, fingerprint)
	}
	r := s.call(ctx, scriptTokenKeys, []string{s.keys.tokenKeys()}, args...)
	return r.yes(), r.err()
}

// checkTokenKeys returns an error if other replicas would refuse the tokens of this one.
func (s *Store) checkTokenKeys(ctx context.Context) error {
	shared, err := s.noteTokenKeys(ctx, s.opts.Lease)
	if err == nil && !shared {
		return &SettingError{
			"REVEILLE_TOKEN_KEY", "the other replicas have different token keys; REVEILLE_TOKEN_KEY must share a key " +
				"with theirs (to change the key, first add the new one after a comma: old,new)",
		}
	}
	return err
}
