// A Cloudflare Worker that Reveille wakes. It answers at once and then does the work: it claims the wake, reads
// the streams from where it left off, processes each message, acknowledges, and says done.

export interface Env {
  WEBHOOK_SECRET: string // the webhook_secret that creating the subscription returned
  STREAMS_URL: string // the root of the stream server: the stream /agents/task-1 is at {STREAMS_URL}/agents/task-1
}

interface StreamOffset {
  path: string
  offset: string // last processed, inclusive; "-1" if nothing was processed
}

interface Wake {
  type?: string // of a test delivery
  consumer_id: string
  epoch: number
  wake_id: string
  streams: StreamOffset[]
  callback: string
  token: string
}

// Your code goes here. A message may come twice (after a crash between processing and acknowledging), so make this
// idempotent: for example, write under a key that is derived from the message.
async function processMessage(path: string, message: unknown, _env: Env): Promise<void> {
  console.log(`processed ${path} ${JSON.stringify(message)}`)
}

export default {
  async fetch(request: Request, env: Env, ctx: ExecutionContext): Promise<Response> {
    if (request.method !== "POST") return new Response("POST only\n", { status: 405 })
    const body = await request.text()
    const signed = (name: string) => isSigned(request.headers.get(name), body, env.WEBHOOK_SECRET)
    if (!(await signed("Webhook-Signature")) && !(await signed("Webhook-Signature-New"))) {
      return new Response("bad signature\n", { status: 401 })
    }
    const wake = JSON.parse(body) as Wake
    if (wake.type === "webhook.test") return new Response(null, { status: 204 }) // an operator tries whether deliveries arrive
    ctx.waitUntil(work(wake, env, request.headers.get("traceparent")))
    return new Response(null, { status: 202 })
  },
}

// The platform allows 30 s after the answer. Messages that are not acknowledged by then come again with another wake.
async function work(wake: Wake, env: Env, traceparent: string | null): Promise<void> {
  const callbacks = new Callbacks(wake, traceparent)
  // The first callback claims the wake. Its answer has the current offsets, which may be beyond those of the wake.
  const streams = await callbacks.send({ wake_id: wake.wake_id })
  if (!streams) return
  for (const { path, offset } of streams) {
    for await (const batch of read(env.STREAMS_URL + path, offset)) {
      for (const message of batch.messages) await processMessage(path, message, env)
      // Acknowledged messages are not processed again after a crash. Every callback, even an empty one, gives 45 more seconds.
      if (!(await callbacks.send({ acks: [{ path, offset: batch.next }] }))) return
    }
  }
  // If more has arrived, the worker is woken again at once.
  await callbacks.send({ done: true })
}

// read yields the messages of a JSON stream beyond an offset, batch by batch, up to its tail.
async function* read(url: string, offset: string): AsyncGenerator<{ messages: unknown[]; next: string }> {
  for (;;) {
    const response = await fetch(`${url}?offset=${encodeURIComponent(offset)}`)
    if (response.status === 410 && offset !== "-1") {
      offset = "-1" // the server does not keep this offset any more: read on from what it still has
      continue
    }
    if (response.status === 404 || response.status === 410) return // the stream is gone, or is not there yet
    if (!response.ok) throw new Error(`GET ${url}: ${response.status}`)
    const next = response.headers.get("Stream-Next-Offset") ?? offset
    yield { messages: (await response.json()) as unknown[], next }
    if (response.headers.get("Stream-Up-To-Date") === "true" || next === offset) return
    offset = next
  }
}

// Callbacks sends the callbacks of one wake, each with the token of the previous answer.
class Callbacks {
  private token: string
  private readonly trace: Record<string, string>

  constructor(private readonly wake: Wake, traceparent: string | null) {
    this.token = wake.token
    this.trace = traceparent ? { traceparent } : {} // puts the callbacks into the trace of the wake
  }

  // Returns the streams with their offsets, or undefined if this wake is no longer ours: then stop, and send nothing more.
  async send(fields: object): Promise<StreamOffset[] | undefined> {
    for (let attempt = 1; ; attempt++) {
      const response = await fetch(this.wake.callback, {
        method: "POST",
        headers: { "Content-Type": "application/json", Authorization: `Bearer ${this.token}`, ...this.trace },
        body: JSON.stringify({ epoch: this.wake.epoch, ...fields }),
      })
      // Reveille cannot accept it now. Every callback may be repeated: it takes effect once.
      if (response.status === 503 && attempt <= 5) {
        await response.body?.cancel()
        await new Promise((go) => setTimeout(go, 1000 * Number(response.headers.get("Retry-After") ?? 1)))
        continue
      }
      const answer = (await response.json()) as {
        token?: string
        streams?: StreamOffset[]
        error?: { code: string; message: string }
      }
      if (answer.token) this.token = answer.token
      if (response.ok) return answer.streams ?? []
      // 409: another instance is at work, or the wake is over. 410: the stream or the subscription was deleted.
      const over = ["STALE_EPOCH", "ALREADY_CLAIMED", "CONSUMER_GONE"]
      if (over.includes(answer.error?.code ?? "")) return undefined
      // The token is valid for an hour. The answer to an expired one has a new one: send the same callback again.
      if (answer.error?.code === "TOKEN_EXPIRED" && attempt <= 5) continue
      // Anything else ends this run. After 45 s without a callback Reveille wakes us again from the acknowledged offsets.
      throw new Error(`callback: ${response.status} ${answer.error?.code} ${answer.error?.message}`)
    }
  }
}

// isSigned checks "t=<unix time>,sha256=<hex>": an HMAC of "<unix time>.<body>", not older than five minutes.
async function isSigned(header: string | null, body: string, secret: string): Promise<boolean> {
  const match = /^t=(\d+),sha256=([0-9a-f]{64})$/.exec(header ?? "")
  if (!match) return false
  const [, time, hex] = match
  if (Math.abs(Date.now() / 1000 - Number(time)) > 300) return false
  const encode = (text: string) => new TextEncoder().encode(text)
  const key = await crypto.subtle.importKey("raw", encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["verify"])
  const signature = Uint8Array.from(hex.match(/../g)!, (byte) => parseInt(byte, 16))
  return crypto.subtle.verify("HMAC", key, signature, encode(`${time}.${body}`)) // takes the same time for every signature
}
