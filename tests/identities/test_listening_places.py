"""Everything that listens in a running deployment: TCP ports by process, and subjects of NATS by account and user."""

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port
from tests.support.s3_servers import S3Server
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(180)

TOOLS = ("analyze_table",)
SUBSCRIPTIONS = {
    ("CORE", "gateway"): {"$KV.catalogue.tool.*"},
    ("CORE", "planner"): {"$KV.catalogue.tool.*", "direct.here", "held.*", "here.<id>", "read.prompt planner"},
    ("CORE", "tool_runner"): {
        *("$KV.catalogue.tool.*", "$KV.catalogue.accepted.*", "$KV.catalogue.declared.*"),
        *("direct.<id>.call", "direct.<id>.status", "direct.here", "hello.<id>", "check.tool tool_runner"),
        "read.tool tool_runner",
        *(f"answer.{tool}.<id>.info" for tool in TOOLS),
    },
    ("CORE", "artifact_store"): {
        *(f"artifact.{verb} artifact_store" for verb in ("put", "open", "get", "head", "list", "delete")),
        *("artifact.assemble artifact_store", "artifact.chunk.<id>"),
    },
    ("TOOLS", "local"): {
        *(f"tool.{tool} {tool}" for tool in TOOLS),
        *(f"tool.{tool}.{verb}" for tool in TOOLS for verb in ("status", "cancel", "rejected", "given")),
    },
}
"""Account and user of NATS -> what it subscribes to between runs, beside its inbox and its micro service."""
PORTS = {"nats-server": 2, "gateway": 1, "planner": 1, "tool_runner": 1, "artifact_store": 1, "tools": 0}
"""Process -> the TCP ports on which it listens: NATS and, in this test, its monitoring; HTTP, or probes."""


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[tuple[NatsServer, Stack, str]]:
    """One process of everything, with the server's monitoring."""
    monitoring = free_port()
    nats = NatsServer(tmp_path / "nats", identities=True, extra=f'http: "127.0.0.1:{monitoring}"')
    nats.start()
    try:
        with ModelServer() as model, S3Server("rclone", tmp_path / "s3") as s3:
            env = {"RUNWIRE_MODEL": "openai/scripted", "RUNWIRE_MODEL_API_BASE": model.url, **s3.settings}
            env["RUNWIRE_MODEL_API_KEY"] = "none"
            tools = ROOT / "examples" / "demo" / "table.py"
            with Stack(
                nats.url, tmp_path / "stack", env, 1, 1, 1, 1, tools=tools, tool_copies=1, passwords=nats.passwords
            ) as stack:
                yield nats, stack, f"http://127.0.0.1:{monitoring}"
        assert nats.violations() == []
    finally:
        nats.kill()


def _named(subject: str) -> str:
    return re.sub(r"\b[0-9a-f]{32}\b", "<id>", subject)


async def _subscriptions(monitoring: str) -> dict[tuple[str, str], set[str]]:
    """What each user subscribes to, ids replaced; inboxes and micro services of its own name left out."""
    async with httpx.AsyncClient(base_url=monitoring) as http:
        found = (await http.get("/connz", params={"subs": "detail", "auth": "true"})).json()["connections"]
    listed: dict[tuple[str, str], set[str]] = {}
    for connection in found:
        user = connection["authorized_user"]
        of_user = listed.setdefault((connection["account"], user), set())
        for each in connection.get("subscriptions_list_detail", ()):
            subject = f"{each['subject']} {each.get('qgroup', '')}".strip()
            if not subject.startswith((f"_INBOX.{user}.", "$SRV.")):
                of_user.add(_named(subject))
            if subject.startswith("$SRV."):
                names = {f"runwire-{user}"} if user != "local" else TOOLS
                assert re.fullmatch(r"\$SRV\.(PING|INFO|STATS)(\.(\S+?)(\.\S+)?)?", subject), subject
                assert subject.count(".") == 1 or subject.split(".")[2] in names, subject
    return listed


async def test_nobody_subscribes_to_what_is_not_listed(deployment: tuple[NatsServer, Stack, str]) -> None:
    """Each service as its own user, tools in an account of their own. A new subscription is a new line here."""

    async def is_as_listed() -> bool:
        return await _subscriptions(deployment[2]) == SUBSCRIPTIONS

    try:
        await wait_until(is_as_listed, what="all have subscribed")
    except AssertionError:
        assert await _subscriptions(deployment[2]) == SUBSCRIPTIONS


def test_nothing_else_listens_on_tcp(deployment: tuple[NatsServer, Stack, str]) -> None:
    """And all of it on loopback."""
    nats, stack, _ = deployment
    listening = {"nats-server": _ports(nats.pid)}
    listening |= {name.rsplit("-", 1)[0]: _ports(stack.pid(name)) for name in stack.parts}
    assert {name: len(ports) for name, ports in listening.items()} == PORTS
    assert {address for ports in listening.values() for address in ports.values()} == {"0100007F"}


def _ports(pid: int) -> dict[int, str]:
    """The TCP ports on which a process listens, each with the address in hexadecimal."""
    sockets = {link.readlink().name for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == "0A" and f"socket:[{inode}]" in sockets:
                address, port = local.split(":")
                found[int(port, 16)] = address
    return found
