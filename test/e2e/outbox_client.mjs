// A client of direct deliveries, written only after the specification (delivery semantics). It uses all eight resources:
// it reconfigures, hands an event over, sees it fail, finds it among the dead, replays it, and looks at the statistics.
// It ends with an error at the first answer that is not as specified.
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'

const api = process.argv[2]
let healthy = false
const came = []
const target = createServer(async (req, res) => {
  let body = ''
  for await (const chunk of req) body += chunk
  came.push({ headers: req.headers, body })
  res.writeHead(healthy ? 204 : 500).end()
})
target.listen(0, '127.0.0.1')
await once(target, 'listening')
const targetURL = `http://127.0.0.1:${target.address().port}/hook`

async function call(method, path, body) {
  const res = await fetch(api + '/webhooks' + path, {
    method,
    headers: body ? { 'content-type': 'application/json' } : {},
    body: body && JSON.stringify(body),
  })
  const text = await res.text()
  assert.ok(res.ok, `${method} ${path}: ${res.status} ${text}`)
  return JSON.parse(text)
}

async function becomes(id, status) {
  for (const began = Date.now(); ; await sleep(100)) {
    const event = await call('GET', `/events/${id}`)
    if (event.status === status) return event
    assert.ok(Date.now() - began < 120_000, `${id} is ${event.status}, not ${status}`)
  }
}

const config = await call('PATCH', '/config', { maxAttempts: 2, initialBackoffMs: 100 })
assert.equal(config.maxAttempts, 2)

const asked = {
  target_url: targetURL, event_type: 'push', provider: 'github', payload: { ref: 'main' }, idempotencyKey: 'idk_of-the-client',
}
const event = await call('POST', '/deliver', asked)
assert.match(event.id, /^whe_/)
assert.equal((await call('POST', '/deliver', asked)).id, event.id)

const dead = await becomes(event.id, 'dead_letter')
assert.equal(dead.attempts, 2)
assert.equal(dead.last_status_code, 500)
assert.deepEqual(dead.payload, asked.payload)
const ids = async (path) => (await call('GET', path)).events.map((e) => e.id)
assert.deepEqual(await ids('/dlq'), [event.id])
assert.deepEqual(await ids('/events?status=dead_letter&provider=github'), [event.id])

healthy = true
const replay = await call('POST', `/events/${event.id}/replay`)
assert.notEqual(replay.id, event.id)
assert.match(replay.idempotency_key, /^idk_/)
await becomes(replay.id, 'delivered')
assert.equal((await call('GET', '/idempotency/idk_of-the-client')).status, 'dead_letter')

const attempts = came.filter((c) => c.headers['x-webhook-id'] === event.id).map((c) => c.headers['x-webhook-attempt'])
assert.deepEqual(attempts, ['1', '2'])
const last = came.at(-1)
assert.equal(last.headers['x-webhook-id'], replay.id)
assert.equal(last.headers['x-idempotency-key'], replay.idempotency_key)
assert.equal(last.headers['x-webhook-event'], 'push')
assert.equal(last.headers['x-webhook-provider'], 'github')
assert.match(last.headers['x-webhook-timestamp'], /^\d{13}$/)
assert.equal(last.body, '{"ref":"main"}')

const twice = await call('POST', `/events/${replay.id}/replay`)
assert.notEqual(twice.id, replay.id)
await becomes(twice.id, 'delivered')
assert.equal((await becomes(replay.id, 'delivered')).attempts, 1)
assert.deepEqual([came.at(-1).headers['x-webhook-id'], came.at(-1).body], [twice.id, last.body])

const { total } = await call('GET', '/stats')
assert.deepEqual([total.handed_over, total.delivered, total.dead_letter], [3, 2, 1])
target.close()
