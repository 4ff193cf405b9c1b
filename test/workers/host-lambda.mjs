// Runs lambda.ts behind HTTP on a free port, with requests turned into events as a function URL turns them.
import { createServer } from "node:http"
import { announce, bundle, endWithParent, settings } from "./host.mjs"

settings()
const code = await bundle("lambda.ts", "node")
const { handler } = await import(`data:text/javascript;base64,${Buffer.from(code).toString("base64")}`)

const server = createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  const url = new URL(request.url, "http://localhost")
  // The platform sends bodies as text or, if it cannot tell that they are text, as base64. Half of the wakes get each.
  const isBase64Encoded = requests++ % 2 === 1
  try {
    const result = await handler({
      version: "2.0",
      rawPath: url.pathname,
      rawQueryString: url.search.slice(1),
      headers: request.headers, // lower case, as the platform has them
      requestContext: { http: { method: request.method, path: url.pathname } },
      body: Buffer.concat(chunks).toString(isBase64Encoded ? "base64" : "utf8"),
      isBase64Encoded,
    })
    response.writeHead(result.statusCode, result.headers).end(result.body)
  } catch (error) {
    console.log(`the handler threw: ${error.stack}`)
    response.writeHead(502).end("Internal Server Error")
  }
})
let requests = 0
server.listen(0, "127.0.0.1", () => announce(server.address().port))
endWithParent(() => process.exit(0))
