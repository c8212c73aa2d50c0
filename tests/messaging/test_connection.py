"""Machines whose clocks are hours off: what ends when is decided by the clock of NATS, and who is off is named."""

import asyncio
import importlib
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from contracts.wire.names import CLOCK, unix_ms
from runwire.cli.commands import doctor
from services.messaging.connection import Bus, ServerClock
from tests.support.model_server import ModelServer, action, answer
from tests.support.nats_server import NatsServer
from tests.support.stack import Stack

_TOOLS = """
import asyncio
import time
from runwire import ToolContext, tool

@tool
async def wait_off(ctx: ToolContext, seconds: float) -> str:
    left_s = ctx.deadline_at / 1000 - time.time()
    await asyncio.sleep(seconds)
    return f"had {'seconds' if 0 < left_s < 60 else 'another time'}"
"""
_OFF_S = {"planner-1": 3600, "tool_runner-1": -7200, "tools-1": 9000, "gateway-1": -3600}


def run_off(off: list[str], runs: list[str]) -> None:
    """Run a function in this process, as on a machine whose clock is so many seconds off."""
    off_ns, real = int(off[0]) * 10**9, time.time_ns
    time.time_ns = lambda: real() + off_ns
    time.time = lambda: time.time_ns() / 1e9
    CLOCK.follow(time.time_ns() // 10**6, unix_ms())  # It had begun before.
    module, _, function = runs[0].partition(":")
    getattr(importlib.import_module(module), function)(*[runs[1:]] * bool(runs[1:]))


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="module")
def off(tmp_path_factory: pytest.TempPathFactory, model: ModelServer) -> Iterator[Stack]:
    """One of each process, each with a clock of its own."""
    folder = tmp_path_factory.mktemp("clocks")
    tools = folder / "clock_tools.py"
    tools.write_text(_TOOLS, encoding="utf-8")
    env = {
        "RUNWIRE_MODEL": "openai/scripted",
        "RUNWIRE_MODEL_API_BASE": model.url,
        "RUNWIRE_MODEL_API_KEY": "none",
        "RUNWIRE_DISCOVER_S": "0.5",
    }
    nats = NatsServer(folder / "nats")
    nats.start()
    stack = Stack(nats.url, folder, env, 1, 1, 1, 0, tools, tool_copies=1)
    for name, seconds in _OFF_S.items():
        service = name.partition("-")[0]
        runs = ["runwire.serving:main", str(tools)] if service == "tools" else [f"services.{service}.__main__:main"]
        stack.parts[name].target = ("tests.messaging.test_connection:run_off", [str(seconds)], runs)
    with stack:
        yield stack
    nats.stop()


@pytest.mark.parametrize(
    ("seconds", "deadline_s", "reason"), [(0.2, 30, "answer_complete"), (60, 1.5, "budget_exhausted")]
)
async def test_runs_end_in_time(seconds: float, deadline_s: float, reason: str, off: Stack, model: ModelServer) -> None:
    """Neither at once, as by a clock that is ahead, nor after hours."""
    model.reset()
    model.say(action("wait_off", seconds=seconds), answer("Waited."))
    body = {"query": "Wait.", "limits": {"deadline_s": deadline_s}}
    with off.showing_logs():
        async with httpx.AsyncClient(base_url=off.url, timeout=45) as http:
            run = (await http.post("/chat", json=body)).json()["run_id"]
            ended = (await http.get(f"/v1/runs/{run}")).json()
    assert ended["reason"] == reason, ended
    if reason == "answer_complete":
        assert "had seconds" in model.ledger[-1].text


async def test_who_is_off_is_named(off: Stack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In `/readyz` of the process, which is ready, and by `runwire doctor`."""
    monkeypatch.setenv("RUNWIRE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("RUNWIRE_NATS_URL", off.nats_url)
    checks = await doctor.examine(off.url, None, {"RUNWIRE_DATA_DIR": str(tmp_path)})
    found = {check.finding.partition(": ")[0]: check for check in checks if check.name == "clock"}
    assert found.keys() == {"runwire-planner", "runwire-tool_runner", "runwire-gateway"}
    for name in ("planner-1", "tool_runner-1", "gateway-1"):
        async with httpx.AsyncClient() as http:
            ready = await http.get(off.url_of(name) + "/readyz")
        side = "ahead of" if _OFF_S[name] > 0 else "behind"
        (warning,) = ready.json()["warnings"]
        assert (ready.status_code, side in warning) == (200, True), warning
        assert side in found[f"runwire-{name.partition('-')[0]}"].finding


async def test_a_clock_that_is_right_is_left_alone(bus: Bus) -> None:
    """And what it shows is not pulled about by slow answers."""
    before = unix_ms() - time.monotonic_ns() // 10**6
    for _ in range(3):
        await ServerClock(bus).read()
    await asyncio.sleep(0)
    assert abs(unix_ms() - time.monotonic_ns() // 10**6 - before) <= 1
    assert bus.clock.warning() == ""
