// Runs cloudflare.ts in workerd, the runtime of Cloudflare Workers, on a free port.
import { spawn } from "node:child_process"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { createInterface } from "node:readline"
import workerd from "workerd"
import { announce, bundle, endWithParent, settings } from "./host.mjs"

const { WEBHOOK_SECRET, STREAMS_URL } = settings()
const dir = mkdtempSync(join(tmpdir(), "reveille-workerd-"))
writeFileSync(join(dir, "worker.js"), await bundle("cloudflare.ts", "browser"))
writeFileSync(
  join(dir, "config.capnp"),
  `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "main", worker = (
      modules = [(name = "worker", esModule = embed "worker.js")],
      compatibilityDate = "2026-01-01",
      bindings = [
        (name = "WEBHOOK_SECRET", text = ${JSON.stringify(WEBHOOK_SECRET)}),
        (name = "STREAMS_URL", text = ${JSON.stringify(STREAMS_URL)}),
      ],
    )),
    # The servers of a test are on this machine, which workers cannot reach by default.
    (name = "internet", network = (allow = ["public", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
`,
)

// workerd says on file descriptor 3 which port it listens on. The shell ends it when this process is gone, however that
// came about: its standard input is closed then.
const script = '"$1" serve --control-fd=3 "$2" & pid=$!; exec 3>&-; cat >/dev/null; kill -9 $pid'
const child = spawn("sh", ["-c", script, "sh", workerd.default, join(dir, "config.capnp")], {
  stdio: ["pipe", "inherit", "inherit", "pipe"],
})
createInterface({ input: child.stdio[3] })
  .on("line", (line) => {
    const event = JSON.parse(line)
    if (event.event === "listen" && event.socket === "http") announce(event.port)
  })
  .on("close", () => process.exit(1)) // workerd has ended
process.on("exit", () => rmSync(dir, { recursive: true, force: true }))
endWithParent(() => process.exit(0))
