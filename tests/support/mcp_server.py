"""An MCP server that follows a script, with the standard library alone, over standard input and output or HTTP.

`mcp_server.py SCRIPT [PORT]`: a JSON file with `tools` and `rules`: `{"on": method, "nth": 2, "do": [action, …]}`, the
first that fits. Actions: `{"send": message, "times": n}`, `{"result": …}`, `{"error": {…}}`, `{"raw": text}`,
`{"stderr": n}`, `{"sleep": s}`, `{"exit": code}`, `{"spawn": s}`, `{"work": ledger}` (a line with the key of a call,
which then takes its `ms`); over HTTP `{"status": 404, "headers": {…}}`, which forgets the session with 404. `$id` and
`$token` stand for those of the request, `{"$x": n}` for n letters. Without a rule it answers as a plain server of the
version 2025-11-25 would. Each request is a line of `<script>.log`.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

SCRIPT = Path(sys.argv[1]) if __name__ == "__main__" else Path()
LOCK = threading.Lock()
COUNTS: Counter[str] = Counter()


def filled(value: Any, message: dict[str, Any]) -> Any:
    """A value of the script, with what stands for parts of the request."""
    params = message.get("params") or {}
    if value == "$id":
        return message.get("id")
    if value == "$token":
        return (params.get("_meta") or {}).get("progressToken")
    if isinstance(value, dict):
        return "x" * value["$x"] if "$x" in value else {key: filled(item, message) for key, item in value.items()}
    return [filled(item, message) for item in value] if isinstance(value, list) else value


def plain(message: dict[str, Any], tools: list[Any]) -> list[dict[str, Any]]:
    params = message.get("params") or {}
    match message.get("method"):
        case "initialize":
            info = {"name": "scripted", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            return [{"result": {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}}]
        case "tools/list":
            return [{"result": {"tools": tools}}]
        case "tools/call":
            return [{"result": {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}}]
        case "ping":
            return [{"result": {}}]
    return [{"error": {"code": -32601, "message": "no such method"}}] if "id" in message else []


def actions(message: dict[str, Any]) -> list[dict[str, Any]]:
    script, method = json.loads(SCRIPT.read_text(encoding="utf-8")), message.get("method", "(answer)")
    with LOCK:
        if not COUNTS and (known := SCRIPT.with_suffix(".log")).exists():  # This is not the first process.
            COUNTS.update(json.loads(line).get("method", "") for line in known.read_text("utf-8").splitlines())
        COUNTS[method] += 1
        with SCRIPT.with_suffix(".log").open("a", encoding="utf-8") as log:
            log.write(json.dumps(message) + "\n")
    for rule in script.get("rules", ()):
        if rule["on"] == method and rule.get("nth", COUNTS[method]) == COUNTS[method]:
            return list(rule["do"])
    return plain(message, script.get("tools", []))


def perform(found: list[dict[str, Any]], message: dict[str, Any], out: Callable[[str], None]) -> None:
    for action in found:
        match action:
            case {"result": _} | {"error": _}:
                out(json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **filled(action, message)}) + "\n")
            case {"send": sent}:
                for _ in range(action.get("times", 1)):
                    out(json.dumps({"jsonrpc": "2.0", **filled(sent, message)}) + "\n")
            case {"raw": text}:
                out(text)
            case _:
                act(action, message)


def act(action: dict[str, Any], message: dict[str, Any]) -> None:
    """Do what is no message."""
    match action:
        case {"stderr": size}:
            sys.stderr.write("e" * size + "\n")
            sys.stderr.flush()
        case {"sleep": seconds}:
            time.sleep(seconds)
        case {"work": ledger}:
            args = message["params"]["arguments"]
            with Path(ledger).open("ab", 0) as lines:
                lines.write(f"{args['key']} {os.getpid()} {time.time():.6f}\n".encode())
            time.sleep(args["ms"] / 1000)
        case {"exit": code}:
            os._exit(code)
        case {"spawn": seconds}:
            subprocess.Popen([sys.executable, "-S", "-c", f"import time; time.sleep({seconds})", str(SCRIPT)])


class Handler(BaseHTTPRequestHandler):
    """Streamable HTTP with sessions."""

    protocol_version = "HTTP/1.1"
    sessions: ClassVar[set[str]] = set()

    def reply(self, status: int, body: str = "", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body.encode())

    def do_GET(self) -> None:
        """Nothing is sent unasked, unless there is a rule for `(get)`."""
        first = next(iter(actions({"method": "(get)"})), {})
        self.reply(first.get("status", 405), first.get("body", ""), **first.get("headers", {}))

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers: dict[str, str] = {}
        if message.get("method") == "initialize":
            headers["Mcp_Session_Id"] = f"session-{time.monotonic_ns()}"
            self.sessions.add(headers["Mcp_Session_Id"])
        elif message.get("method") != "server/discover" and self.headers["Mcp-Session-Id"] not in self.sessions:
            return self.reply(404)
        lines: list[str] = []
        found = actions(message)
        if "status" in (first := found[0] if found else {}):
            self.sessions.clear() if first["status"] == 404 else None
            return self.reply(first["status"], first.get("body", ""), **first.get("headers", {}))
        perform(found, message, lines.append)
        if "id" not in message:
            return self.reply(202)
        return self.reply(200, lines[-1], **headers)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def main() -> None:
    script = json.loads(SCRIPT.read_text(encoding="utf-8"))
    if len(sys.argv) > 2:
        sys.stdout.write(f"serving {script.get('serves', '')}\n")
        sys.stdout.flush()
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
    writing = threading.Lock()

    def out(text: str) -> None:
        with writing:
            sys.stdout.write(text)
            sys.stdout.flush()

    if any(rule["on"] == "(start)" for rule in script.get("rules", ())):
        perform(actions({"method": "(start)"}), {}, out)
    for line in sys.stdin:
        message = json.loads(line)
        threading.Thread(target=perform, args=(actions(message), message, out), daemon=True).start()


if __name__ == "__main__":
    main()
