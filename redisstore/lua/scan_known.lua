-- Goes through the streams that discovery came upon. Batches: call again with the returned cursor until it is "0".
-- ARGV[9] cursor  ARGV[10] about how many
-- Returns { next cursor, { path, when it was first heard of, … } }. O(batch).
return batch('HSCAN', P .. 'known', ARGV[A], ARGV[A + 1])
