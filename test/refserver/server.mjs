// Starts the Durable Streams reference server and prints one line of JSON, {"url":"http://127.0.0.1:PORT"}, once it
// listens. Flags:
//   --port N                port to listen on (0: any free one, which is the default)
//   --host ADDRESS          address to listen on (127.0.0.1)
//   --long-poll-timeout MS  how long a long-poll waits before it is answered 204 (30000)
//   --data-dir DIR          keep the streams in this folder (default: in memory)
//   --registry              record every stream created or deleted in {url}/v1/stream/__registry__; the hook of the
//                           reference server assumes that all streams live under /v1/stream then
//   --exit-with-stdin       end when standard input is closed, that is, when whoever started this is gone
import { parseArgs } from "node:util"
import { DurableStreamTestServer, createRegistryHooks } from "@durable-streams/server"

const { values: flags } = parseArgs({
  options: {
    port: { type: "string", default: "0" },
    host: { type: "string", default: "127.0.0.1" },
    "long-poll-timeout": { type: "string", default: "30000" },
    "data-dir": { type: "string" },
    registry: { type: "boolean", default: false },
    "exit-with-stdin": { type: "boolean", default: false },
  },
})

// The hooks need the server's own URL, which is known only once it listens.
let hooks
const server = new DurableStreamTestServer({
  port: Number(flags.port),
  host: flags.host,
  longPollTimeout: Number(flags["long-poll-timeout"]),
  dataDir: flags["data-dir"],
  ...(flags.registry && {
    onStreamCreated: (event) => hooks.onStreamCreated(event),
    onStreamDeleted: (event) => hooks.onStreamDeleted(event),
  }),
})

let stopping = false
async function stop() {
  if (stopping) return
  stopping = true
  // A client that keeps its connection open must not keep the server alive.
  setTimeout(() => process.exit(0), 2000).unref()
  await server.stop()
  process.exit(0)
}
process.on("SIGTERM", stop)
process.on("SIGINT", stop)
if (flags["exit-with-stdin"]) process.stdin.on("end", stop).on("error", stop).resume()

const url = await server.start()
// Node closes a connection that was idle for 5 s, and fails the request that is on its way then: one that was sent while
// a process paused, for example.
server.server.keepAliveTimeout = 600_000
if (flags.registry) hooks = createRegistryHooks(server.store, url)
console.log(JSON.stringify({ url }))
