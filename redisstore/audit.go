package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"reveille/fsm"
)

// NoteChange implements control.AuditStore. No decision depends on the audit, so no script uses it. If the reply is
// lost, the client repeats the command, and the change is listed twice.
func (s *Store) NoteChange(ctx context.Context, c fsm.Change) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return wrap(s.rdb.XAdd(ctx, &redis.XAddArgs{
		Stream: s.keys.audit(), MaxLen: fsm.MaxChanges, Approx: true, Values: []any{"change", text},
	}).Err())
}

// Changes implements control.AuditStore.
func (s *Store) Changes(ctx context.Context, before string, most int) ([]fsm.Change, error) {
	entries, err := s.rdb.XRevRangeN(ctx, s.keys.audit(), upTo(before), "-", int64(most)).Result()
	if err != nil {
		return nil, wrap(err)
	}
	list := make([]fsm.Change, len(entries))
	for i, e := range entries {
		text, _ := e.Values["change"].(string)
		if err := json.Unmarshal([]byte(text), &list[i]); err != nil {
			list[i].What = fmt.Sprintf("what cannot be read (%v)", err)
		}
		list[i].ID, list[i].At = e.ID, time.UnixMilli(fsm.LogMillis(e.ID))
	}
	return list, nil
}

// upTo is where a list begins that goes on before an entry, or with the last one if it is empty.
func upTo(before string) string {
	if before == "" {
		return "+"
	}
	return "(" + before
}
