// Answers 200 to requests that the function in SIGNATURES.md finds rightly signed, and 401 to others.
import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import { announce, endWithParent, settings } from "./host.mjs"

settings()
const page = readFileSync(new URL("../../dispatcher/format/SIGNATURES.md", import.meta.url), "utf8")
const [, code] = /```js\n([^`]*export function verify\([\s\S]*?)```/.exec(page)
const { verify } = await import("data:text/javascript," + encodeURIComponent(code))
const server = createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  response.writeHead(verify(request.headers, Buffer.concat(chunks), process.env.WEBHOOK_SECRET) ? 200 : 401).end()
})
server.listen(0, "127.0.0.1", () => announce(server.address().port))
endWithParent(() => process.exit(0))
