"""What a service imports until it is ready to connect. Each library here costs memory, and time after every kill."""

import json
import subprocess
import sys

import pytest

SERVICES = ("planner", "tool_runner", "artifact_store", "gateway")
UNWANTED = ("PIL", "httpx", "litellm", "numpy", "openai", "rich", "tiktoken", "typer")
"""Imported by no service at its start. A decoder of images has a process of its own."""
ONLY = {"aiohttp": "planner", "fastapi": "gateway", "faststream": "artifact_store", "minio": "artifact_store"}
"""Imported by this service and no other."""
MAX_MODULES = {"planner": 895, "tool_runner": 620, "artifact_store": 970, "gateway": 895}
"""A tenth more than today. A library that brings many modules is a decision: raise the number with it."""


def imported(module: str) -> set[str]:
    """The modules that this one brings with it: those of a service before it connects."""
    code = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    found = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(found.stdout))


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_without_what_it_does_not_need(service: str) -> None:
    """By names, and by their number: a time would depend on the machine."""
    modules = imported(f"services.{service}.__main__")
    libraries = {name.partition(".")[0] for name in modules}
    assert not libraries & {*UNWANTED, *(name for name, user in ONLY.items() if user != service)}
    assert len(modules) <= MAX_MODULES[service]


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("runwire.cli.app", {"aiohttp", "asyncio", "httpx", "nats", "pydantic"}),
        ("runwire.cli.commands.machine", {"aiohttp", "httpx", "nats", "pydantic"}),
        ("runwire.cli", {"asyncio", "rich", "typer"}),
        ("runwire.serving", {"aiohttp", "httpx", "rich", "typer"}),
        ("runwire", {"httpx", "nats", "pydantic"}),
    ],
)
def test_the_launcher_and_tools_import_no_library_of_another_command(module: str, unwanted: set[str]) -> None:
    """`runwire up` runs as long as the system does, and each served tool is a process."""
    assert not {name.partition(".")[0] for name in imported(module)} & unwanted
