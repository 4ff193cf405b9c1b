// Answers 200 to requests that the library of Standard Webhooks finds rightly signed, and 401 to others.
import { createServer } from "node:http"
import { Webhook } from "standardwebhooks"
import { announce, endWithParent, settings } from "./host.mjs"

settings()
const webhook = new Webhook(process.env.WEBHOOK_SECRET)
const server = createServer(async (request, response) => {
  const chunks = []
  for await (const chunk of request) chunks.push(chunk)
  try {
    webhook.verify(Buffer.concat(chunks).toString(), request.headers)
    response.writeHead(200).end()
  } catch (error) {
    response.writeHead(401).end(error.message)
  }
})
server.listen(0, "127.0.0.1", () => announce(server.address().port))
endWithParent(() => process.exit(0))
