"""A storm over calls of tools of MCP servers: a program beside each tool runner, which dies with it, and an address."""

import json
import random
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from contracts.wire.names import new_id
from services.messaging.connection import Bus
from tests.support import mcp_server
from tests.support.model_server import Say, Seen, action
from tests.support.stack import Stack
from tests.system import run_storm
from tests.system.model import Plan, PlannedModel
from tests.system.run_storm import RunStorm
from tests.system.traces import Evidence, planned_calls

SERVERS = {"near": "", "far": "far_"}
"""The servers, with the prefix of their tools."""
IDEMPOTENT = {prefix + tool: tool == "often" for prefix in SERVERS.values() for tool in ("often", "once")}
_TIMELESS = frozenset(tool for tool in IDEMPOTENT if tool.startswith(SERVERS["far"]))
AGENTS = {"default": {"tools": [*IDEMPOTENT]}}


class McpModel(PlannedModel):
    """Gives each call an argument of its own, which is its key in the ledger: servers are not told the call's."""

    def reply_to(self, seen: Seen) -> Say:
        said, plan = super().reply_to(seen), Plan.read(seen.text)
        if plan is None or said.status != 200 or seen.turns >= len(plan.turns):
            return said
        tools = plan.turns[seen.turns]
        args = [{"ms": plan.call_ms, "key": new_id()} for _ in tools]
        steps = [{"node": tool, "args": each} for tool, each in zip(tools, args, strict=True)]
        call = action(tools[0], **args[0]) if len(tools) == 1 else action("plan", steps=steps)
        return replace(said, text=call.text)


def add_servers(stack: Stack, ledger: Path) -> None:
    """Plan a process that is the server `far`, and give the tool runners the file that names both."""
    tools = [{"name": name, "description": "Works."} for name in ("often", "once")]
    rules = [{"on": "tools/call", "do": [{"work": str(ledger)}, {"result": {"content": []}}]}]
    far, near, file = (stack.folder / f"{name}.json" for name in ("far", "near", "servers"))
    for script in (far, near):  # Each has a log of its own.
        script.write_text(json.dumps({"tools": tools, "rules": rules, "serves": ", ".join(IDEMPOTENT)}))
    stack.add("mcp-1", mcp_server.__file__, str(far), sign=b"serving ")
    part = stack.parts["mcp-1"]
    part.command.append(str(part.port))
    where: dict[str, dict[str, object]] = {
        "near": {"command": sys.executable, "args": ["-S", mcp_server.__file__, str(near)]},
        "far": {"url": f"http://127.0.0.1:{part.port}/mcp"},
    }
    common = {"approval": "never", "idempotent": ["often"], "timeout_s": 10}
    servers = {name: {**where[name], **common, "prefix": prefix} for name, prefix in SERVERS.items()}
    file.write_text(json.dumps({"mcpServers": servers}))
    for name in stack.names("tool_runner"):
        stack.parts[name].env["RUNWIRE_MCP_SERVERS_FILE"] = str(file)


@dataclass
class McpStorm(RunStorm):
    """One storm under way."""

    found: Evidence = field(default_factory=lambda: Evidence([], idempotent=IDEMPOTENT, timeless=_TIMELESS))

    def draw(self, rng: random.Random, nth: int) -> Plan:
        drawn = run_storm.draw(rng, nth)
        turns = tuple(
            tuple(rng.choice([*IDEMPOTENT]) for _ in range(rng.choice([1, 1, 2, 3]))) for _ in range(rng.randint(1, 4))
        )
        return replace(drawn, strategy="react", turns=turns, wrong="", deadline_s=0, agent="default")

    async def gather(self, bus: Bus) -> None:
        """The log says which call has which key."""
        await super().gather(bus)
        planned = [(run, call) for run in self.found.runs for _, call in planned_calls(run)]
        known = {call["args"]["key"]: f"{run.run_id}.{call['call_id']}" for run, call in planned}
        for each in self.found.executions:
            each.key = known.get(each.key, each.key)
