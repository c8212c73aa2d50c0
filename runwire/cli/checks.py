"""The checks of `runwire doctor`. Each says what it found and, where something is wrong, how to fix it."""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping

import httpx

from contracts.wire import health
from runwire.cli.check import Check
from runwire.cli.model_check import model_of_next_start, planners_model
from runwire.cli.setting_names import misspelt
from runwire.cli.tool_checks import tool_checks
from runwire.client import Client
from runwire.errors import NotFound, RunwireError
from runwire.local import launch

_LOW_DISK_BYTES = 2 << 30
_FULL_DISK_BYTES = 16 << 20
_PATIENCE_S = 5.0
_FREE_DISK_SPACE = "free disk space; `runwire up` then restarts NATS by itself, docs/operations.md says what else does"


async def examine(url: str, api_key: str | None, env: Mapping[str, str]) -> list[Check]:
    """Check this machine and the gateway. Never raises for what it finds."""
    local = [_python(), await asyncio.to_thread(_nats_server), _data(), *_durability(), *_settings(env)]
    return [*local, *await _gateway(url, api_key, env)]


def _python() -> Check:
    return Check("python", "ok", f"{platform.python_version()} at {sys.executable}")


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


def _settings(env: Mapping[str, str]) -> list[Check]:
    return [
        Check("settings", "warning", warning, "correct its name; docs/operations.md names the settings")
        for warning in misspelt(env)
    ]


async def _gateway(url: str, api_key: str | None, env: Mapping[str, str]) -> list[Check]:
    try:
        client = Client(url, api_key, patience_s=_PATIENCE_S)
    except RunwireError as error:  # no address, or no key
        return [model_of_next_start(env), Check("gateway", "failed", str(error))]
    async with client:
        try:
            async with httpx.AsyncClient(base_url=url, timeout=5) as http:
                ready = await http.get("/readyz")
        except httpx.HTTPError as error:
            finding = f"{url} does not answer ({type(error).__name__})"
            return [
                model_of_next_start(env),
                Check("gateway", "failed", finding, "start it: runwire up; or give --url"),
            ]
        if ready.status_code != httpx.codes.OK:
            problems = _problems(ready)
            mend = _FREE_DISK_SPACE if health.NOT_STORED in problems else "see the logs: runwire logs"
            return [Check("gateway", "failed", f"{url} is not ready: {problems}", mend)]
        checks = [Check("gateway", "ok", f"{url} is ready")]
        try:
            checks.append(await _model(client))
            names, refused = [spec.name for spec in await client.tools()], await client.refused_tools()
        except RunwireError as error:
            mend = "give --api-key" if error.status in {401, 403} else ""
            return [*checks, Check("gateway", "failed", str(error), mend)]
    is_of_data_folder = "RUNWIRE_DATA_DIR" in env or launch.remembered(launch.data_dir()).get("url") == url
    return checks + await tool_checks(names, refused, is_of_data_folder=is_of_data_folder)


async def _model(client: Client) -> Check:
    try:
        return planners_model(await client.agents())
    except NotFound:
        return Check("model", "warning", "the gateway does not say which, it is of an earlier version")


def _problems(ready: httpx.Response) -> str:
    """What a gateway that is not ready says, or the beginning of another program's answer."""
    try:
        return "; ".join(ready.json()["problems"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP status {ready.status_code}, {ready.text[:200]}"
