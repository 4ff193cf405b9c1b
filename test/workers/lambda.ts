// An AWS Lambda function, behind a function URL or an HTTP API, that Reveille wakes. It reads and processes within the
// request and answers {"done":true}: no callback is needed.
//
// That answer acknowledges everything that had arrived when this wake was sent. It is right if all of that has been
// processed when the function returns, and if that takes less than 30 s, which is how long Reveille waits. What arrives
// later wakes the function again. If the work takes longer, or should be acknowledged in parts, use callbacks as in the
// example for Cloudflare Workers.
import { createHmac, timingSafeEqual } from "node:crypto"
import type { APIGatewayProxyEventV2, APIGatewayProxyStructuredResultV2 } from "aws-lambda"

interface Wake {
  type?: string // of a test delivery
  consumer_id: string
  epoch: number
  wake_id: string
  streams: { path: string; offset: string }[] // offset: last processed, inclusive; "-1" if nothing was processed
}

// Your code goes here. A message may come twice (if the answer was lost on its way), so make this idempotent: for
// example, write under a key that is derived from the message.
async function processMessage(path: string, message: unknown): Promise<void> {
  console.log(`processed ${path} ${JSON.stringify(message)}`)
}

export async function handler(event: APIGatewayProxyEventV2): Promise<APIGatewayProxyStructuredResultV2> {
  // The signature covers the bytes of the body as they were sent.
  const body = Buffer.from(event.body ?? "", event.isBase64Encoded ? "base64" : "utf8")
  const signed = (name: string) => isSigned(event.headers[name], body, setting("WEBHOOK_SECRET"))
  if (!signed("webhook-signature") && !signed("webhook-signature-new")) {
    return { statusCode: 401, body: "bad signature\n" }
  }
  const wake = JSON.parse(body.toString("utf8")) as Wake
  if (wake.type === "webhook.test") return { statusCode: 204 } // an operator tries whether deliveries arrive
  for (const { path, offset } of wake.streams) {
    for await (const message of read(setting("STREAMS_URL") + path, offset)) await processMessage(path, message)
  }
  // An exception before this line makes the platform answer 5xx: nothing is acknowledged and Reveille tries again.
  return { statusCode: 200, headers: { "Content-Type": "application/json" }, body: JSON.stringify({ done: true }) }
}

// read yields the messages of a JSON stream beyond an offset, up to its tail.
async function* read(url: string, offset: string): AsyncGenerator<unknown> {
  for (;;) {
    const response = await fetch(`${url}?offset=${encodeURIComponent(offset)}`)
    if (response.status === 410 && offset !== "-1") {
      offset = "-1" // the server does not keep this offset any more: read on from what it still has
      continue
    }
    if (response.status === 404 || response.status === 410) return // the stream is gone, or is not there yet
    if (!response.ok) throw new Error(`GET ${url}: ${response.status}`)
    yield* (await response.json()) as unknown[]
    const next = response.headers.get("Stream-Next-Offset") ?? offset
    if (response.headers.get("Stream-Up-To-Date") === "true" || next === offset) return
    offset = next
  }
}

// isSigned checks "t=<unix time>,sha256=<hex>": an HMAC of "<unix time>.<body>", not older than five minutes.
function isSigned(header: string | undefined, body: Buffer, secret: string): boolean {
  const match = /^t=(\d+),sha256=([0-9a-f]{64})$/.exec(header ?? "")
  if (!match) return false
  const [, time, hex] = match
  if (Math.abs(Date.now() / 1000 - Number(time)) > 300) return false
  const expected = createHmac("sha256", secret).update(`${time}.`).update(body).digest()
  return timingSafeEqual(expected, Buffer.from(hex, "hex"))
}

function setting(name: string): string {
  const value = process.env[name]
  if (!value) throw new Error(`the environment variable ${name} is not set`)
  return value
}
