"""`runwire doctor`: each check says what it found and, where something is wrong, how to fix it."""

import asyncio
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Annotated

import httpx
import orjson
import typer

from contracts.wire import operation, subjects
from runwire.cli.frame import Check, Found, Key, Url, checklist, command, gateway_of
from runwire.cli.operator import OperatorRefused, connected_operator, replies, server_checks, tool_checks
from runwire.cli.printing import time_text
from runwire.client import AgentModels, Client
from runwire.client.options import LimitOptions
from runwire.errors import IdentitiesUnreadable, InvalidCredential, RunwireError
from runwire.events import Error
from runwire.local import launch
from runwire.local.configuration import misspelt

commands = typer.Typer()

_LOW_DISK_BYTES = 2 << 30
_FULL_DISK_BYTES = 16 << 20
_PATIENCE_S, _ANSWER_S = 5.0, 60.0
_SHOWN_FAILURES = 3
_SHOW = "`runwire runs show` with its id has the reason"
_FREE_DISK_SPACE = "free disk space; `runwire up` then restarts NATS by itself, docs/operations.md says what else does"
_START_NATS = "start NATS, or correct RUNWIRE_NATS_URL and the login of the services"
_START_S3 = "start the S3 server, or correct RUNWIRE_S3_ENDPOINT and its keys"
_CONFIGURE = "set RUNWIRE_MODEL, or a provider's key, and start `runwire up` again"


@command(commands)
async def doctor(
    url: Url = None,
    api_key: Key = None,
    ask: Annotated[
        bool, typer.Option("--ask", help="Put one question to each model, and show the last runs that failed.")
    ] = False,
) -> Found:
    """Check this machine, the gateway, NATS, the model and the tools; say how to fix what is wrong."""
    return checklist(await examine(*gateway_of(url, api_key), os.environ, ask=ask))


async def examine(url: str, api_key: str | None, env: Mapping[str, str], *, ask: bool = False) -> list[Check]:
    """Check this machine and the gateway. `ask`: its models too. Never raises for what it finds."""
    python = Check("python", "ok", f"{platform.python_version()} at {sys.executable}")
    remedy = "correct its name; docs/operations.md names the settings"
    settings = [Check("settings", "warning", warning, remedy) for warning in misspelt(env)]
    local = [python, await asyncio.to_thread(_nats_server), _data(), *_durability(), *settings]
    return [*local, *await _gateway(url, api_key, env, ask=ask)]


def _nats_server() -> Check:
    try:
        binary = launch.find_nats_server()
        command = [binary, "--version"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
    except (launch.CannotLaunch, OSError, subprocess.SubprocessError) as error:
        return Check("nats-server", "warning", str(error), "needed by `runwire up` only")
    return Check("nats-server", "ok", ended.stdout.strip().removeprefix("nats-server: "))


def _data() -> Check:
    folder = launch.data_dir()
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(existing, os.W_OK):
        return Check("data", "failed", f"{folder} cannot be written", "set RUNWIRE_DATA_DIR to a folder of yours")
    free = shutil.disk_usage(existing).free
    if free < _FULL_DISK_BYTES:
        return Check("data", "failed", f"the disk of {folder} is full: {free >> 10} KiB free", _FREE_DISK_SPACE)
    if free < _LOW_DISK_BYTES:
        return Check(
            "data", "warning", f"{folder}: {free >> 20} MiB free", "runs are kept 30 days; see RUNWIRE_RETENTION_DAYS"
        )
    return Check("data", "ok", f"{folder}: {free >> 30} GiB free")


def _durability() -> list[Check]:
    """Say what a power cut would cost the system that `runwire up` runs from the data folder."""
    match launch.remembered(launch.data_dir()).get("sync"):
        case None:
            return []
        case "always":
            return [Check("durability", "ok", "sync always: every acknowledged write survives a power cut")]
        case interval:
            lost = f"sync {interval}: a power cut may lose what was written in that time"
            return [Check("durability", "ok", lost, "`runwire up --sync always` loses nothing, and is slower")]


async def _gateway(url: str, api_key: str | None, env: Mapping[str, str], *, ask: bool) -> list[Check]:
    try:
        client = Client(url, api_key, patience_s=_PATIENCE_S)
    except RunwireError as error:  # no address, or no key
        return [model_of_next_start(env), Check("gateway", "failed", str(error))]
    async with client:
        try:
            async with httpx.AsyncClient(base_url=url, timeout=5) as http:
                ready = await http.get("/readyz")
        except httpx.HTTPError as error:
            finding = f"{url} does not answer ({str(error) or type(error).__name__})"
            trust = "name the authority of its certificate in SSL_CERT_FILE"
            start = "start it: runwire up; or give --url"
            failed = Check("gateway", "failed", finding, trust if "CERTIFICATE" in finding else start)
            return [model_of_next_start(env), failed]
        if ready.status_code != httpx.codes.OK:
            try:
                problems = "; ".join(ready.json()["problems"])
            except (ValueError, KeyError, TypeError):  # Another program's answer.
                problems = f"HTTP status {ready.status_code}, {ready.text[:200]}"
            known = {operation.NOT_STORED: _FREE_DISK_SPACE, operation.NOT_CONNECTED: _START_NATS}
            mend = next((known[sign] for sign in known if sign in problems), "see the logs: runwire logs")
            return [Check("gateway", "failed", f"{url} is not ready: {problems}", mend)]
        checks = [Check("gateway", "ok", f"{url} is ready")]
        is_of_data_folder = "RUNWIRE_DATA_DIR" in env or launch.remembered(launch.data_dir()).get("url") == url
        services = await service_checks() if is_of_data_folder or "RUNWIRE_NATS_CREDENTIALS" in env else []
        checks += services or [_clock("gateway", warning) for warning in ready.json().get("warnings", ())]
        try:
            checks.append(planners_model(agents := await client.agents()))
            if ask:
                models = sorted({model for agent in agents for model in agent.models})
                failures = [
                    Check("failure", "warning", f"{run.run_id} at {time_text(run.requested_at)}: {run.code}", _SHOW)
                    async for run in client.list_runs(status="error", limit=_SHOWN_FAILURES)
                ]
                checks += [*await asyncio.gather(*(_answer(client, model) for model in models)), *failures]
            tools, refused = await client.tools(), await client.refused_tools()
        except RunwireError as error:
            other = f"give {'another key' if api_key else 'a key'} with --api-key or RUNWIRE_API_KEY"
            mend = other if error.status in {401, 403} else ""
            return [*checks, Check("gateway", "failed", str(error), mend)]
    mend = "docs/mcp.md#when-something-breaks"
    for each in server_checks(tools, refused, "warning"):
        checks.append(Check("mcp", each.status, f"{each.name}: {each.finding}", mend if each.status != "ok" else ""))
    return checks + await tool_checks([spec.name for spec in tools], refused, is_of_data_folder=is_of_data_folder)


async def service_checks() -> list[Check]:
    """Ask the services what they find of their machines' clocks and of the S3 server, as the operator."""
    found: dict[tuple[str, str], Check] = {}
    with contextlib.suppress(IdentitiesUnreadable, InvalidCredential, OperatorRefused):  # As the checks of tools say.
        async with connected_operator() as client:
            async for message in replies(client, subjects.micro_service("INFO"), client.new_inbox()):
                with contextlib.suppress(KeyError, TypeError, AttributeError, ValueError):
                    info = orjson.loads(message.data)
                    if warning := info["metadata"].get(operation.CLOCK_METADATA):
                        found[info["id"], "clock"] = _clock(info["name"], warning)
                    if problem := info["metadata"].get(operation.S3_METADATA):
                        found[info["id"], "s3"] = Check("s3", "failed", f"{info['name']}: {problem}", _START_S3)
    return list(found.values())


def _clock(service: str, warning: str) -> Check:
    return Check("clock", "warning", f"{service}: {warning}", "let NTP set the clock of each machine")


async def _answer(client: Client, model: str) -> Check:
    began_at = time.monotonic()
    limits: LimitOptions = {"max_steps": 1, "deadline_s": _ANSWER_S}
    run = await client.start("Reply with the word OK.", model=model, tools=[], limits=limits)
    last = [event async for event in client.follow(run)][-1]
    await client.delete(run)
    if isinstance(last, Error):
        return Check("answer", "failed", f"{model}: {last.error} ({last.code})", "see docs/models.md")
    return Check("answer", "ok", f"{model} has answered after {time.monotonic() - began_at:.1f} s")


def planners_model(agents: list[AgentModels]) -> Check:
    """What the running planners use. `agents`: as the gateway lists them."""
    models = {agent.name: ", ".join(agent.models) for agent in agents}
    if not models:
        return Check("model", "warning", "no planner runs, so questions wait", "see its log: runwire logs -s planner")
    usual = models.pop("default", "")
    others = [f"{name}: {model}" for name, model in models.items() if model != usual]
    finding = "; ".join([f"{usual} (the planner's)", *others] if usual else others)
    if usual == operation.DEMO_MODEL:
        return Check("model", "warning", f"{finding}: the demo model, which follows a few rules", _CONFIGURE)
    return Check("model", "ok", finding)


def model_of_next_start(env: Mapping[str, str]) -> Check:
    """What `runwire up` would use if it were started in this shell."""
    would = "would answer after `runwire up` in this shell"
    if env.get("RUNWIRE_MODEL"):
        return Check("model", "ok", f"{env['RUNWIRE_MODEL']} {would} (RUNWIRE_MODEL)")
    for key, model in operation.MODEL_BY_KEY.items():
        if env.get(key, "").strip():
            return Check("model", "ok", f"{model} {would} ({key})")
    if launch.listens(operation.OLLAMA_PORT):
        return Check("model", "ok", f"one of the local Ollama on port {operation.OLLAMA_PORT} {would}")
    return Check("model", "warning", f"the demo model {operation.DEMO_MODEL} {would}", _CONFIGURE)
