// Parses what it gets with the JavaScript SDK of CloudEvents, and tells at GET /seen what that made of it. An event
// whose data ask for it is refused as often as they say. What the SDK does not take is answered 400.
import { createServer } from "node:http"
import { HTTP } from "cloudevents"
import { announce, endWithParent } from "./host.mjs"

const seen = []
const refused = new Map()

// parse returns the events of a request. The SDK wants texts as such, and bytes as a Buffer.
function parse(headers, body) {
  const text = /json|^text\//.test(headers["content-type"])
  const events = [HTTP.toEvent({ headers, body: text ? body.toString() : body })].flat()
  for (const event of events) event.validate()
  return events.map((event) => event.toJSON())
}

// answer is the status that the data of an event ask for.
function answer({ id, data }) {
  const times = refused.get(id) ?? 0
  if (!data?.refuse || times >= data.times) return 204
  refused.set(id, times + 1)
  return data.refuse
}

const server = createServer(async (request, response) => {
  if (request.url === "/seen") return response.end(JSON.stringify(seen))
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  try {
    const events = parse(request.headers, Buffer.concat(chunks))
    const status = Math.max(...events.map(answer))
    const { "content-type": type, "webhook-id": delivery, "reveille-replay": replay } = request.headers
    seen.push({ path: request.url, type, delivery, replay, status, events })
    response.writeHead(status).end()
  } catch (error) {
    seen.push({ path: request.url, status: 400, error: `${error}` })
    response.writeHead(400).end(`${error}`)
  }
})
server.listen(0, "127.0.0.1", () => announce(server.address().port))
endWithParent(() => process.exit(0))
