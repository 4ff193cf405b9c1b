-- restarts counts the partition's streams that were made anew or deleted while they had too many consumers for one
-- script.
local function restarts()
  if not restarted then
    restarted = tonumber(meta()[4] or '0')
  end
  return restarted
end

-- count_restart notes that a stream was restarted. Until a consumer of it is visited, it counts as a consumer of the
-- old stream. A second deletion finds no tail. Then the old tail is still right for consumers that were not visited
-- since the first one.
local function count_restart(path)
  restarted = redis.call('HINCRBY', P .. 'meta', 'restarts', 1)
  redis.call('HSET', P .. 's:' .. path, 'r', restarted)
  if old_tails[path] ~= '' then redis.call('HSET', P .. 's:' .. path, 'was', old_tails[path]) end
end

-- visited returns the restart at which a consumer was last visited. Function is_former says whether a stream was made
-- anew or deleted since.
local function visited(id) return tonumber(redis.call('HGET', P .. 'f:' .. id, 'restarts') or '0') end
local function is_former(path, seen) return tonumber(redis.call('HGET', P .. 's:' .. path, 'r') or '0') > seen end
