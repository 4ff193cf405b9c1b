// The Durable Streams conformance suite against the server at CONFORMANCE_URL. LONG_POLL_MS is how long that server lets
// a long-poll wait. (BASE_URL would be the natural name, but vitest sets that one itself.)
import { runConformanceTests } from "@durable-streams/server-conformance-tests"

runConformanceTests({
  baseUrl: process.env.CONFORMANCE_URL,
  longPollTimeoutMs: Number(process.env.LONG_POLL_MS),
})
