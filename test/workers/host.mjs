// What the two hosts share.
import { build } from "esbuild"

// bundle returns the JavaScript of a worker's TypeScript.
export async function bundle(file, platform) {
  const result = await build({
    entryPoints: [new URL(file, import.meta.url).pathname],
    bundle: true,
    format: "esm",
    platform,
    target: "es2022",
    write: false,
  })
  return result.outputFiles[0].text
}

// announce tells whoever started this where the worker listens.
export function announce(port) {
  console.log(JSON.stringify({ url: `http://127.0.0.1:${port}` }))
}

// endWithParent runs stop when this process is asked to end, or when whoever started it is gone.
export function endWithParent(stop) {
  process.on("SIGTERM", stop)
  process.on("SIGINT", stop)
  process.stdin.on("end", stop).on("error", stop).resume()
}

// settings are the two that both workers have.
export function settings() {
  const { WEBHOOK_SECRET, STREAMS_URL } = process.env
  if (!WEBHOOK_SECRET || !STREAMS_URL) throw new Error("WEBHOOK_SECRET and STREAMS_URL must be set")
  return { WEBHOOK_SECRET, STREAMS_URL }
}
