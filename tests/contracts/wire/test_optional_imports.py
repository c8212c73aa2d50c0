"""What a service imports until it is ready to connect. Each library here costs memory, and time after every kill."""

import json
import subprocess
import sys
import zipfile

import pytest

from contracts.wire.optional_imports import import_without

SERVICES = ("planner", "tool_runner", "artifact_store", "gateway")
UNWANTED = ("Crypto", "PIL", "argon2", "httpx", "litellm", "numpy", "openai", "rich", "tiktoken", "typer")
"""Imported by no service at its start. A decoder of images has a process of its own."""
ONLY = {
    "aiohttp": {"planner"},
    "fastapi": {"gateway"},
    "faststream": {"artifact_store"},
    "minio": {"artifact_store"},
    "uvicorn": {"gateway"},
}
"""Imported by these services and no other."""
MAX_MODULES = {"planner": 855, "tool_runner": 590, "artifact_store": 835, "gateway": 815}
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
    assert not libraries & {*UNWANTED, *(name for name, users in ONLY.items() if service not in users)}
    assert len(modules) <= MAX_MODULES[service]


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("runwire.cli.app", {"aiohttp", "asyncio", "httpx", "nats", "pydantic"}),
        ("runwire.cli.commands.machine", {"aiohttp", "httpx", "nats", "pydantic"}),
        ("runwire.cli.entry_point", {"asyncio", "rich", "typer"}),
        ("runwire.serving", {"httpx", "rich", "typer"}),
        ("runwire", {"httpx", "nats", "pydantic"}),
    ],
)
def test_the_launcher_and_tools_import_no_library_of_another_command(module: str, unwanted: set[str]) -> None:
    """`runwire up` runs as long as the system does, and each served tool is a process."""
    assert not {name.partition(".")[0] for name in imported(module)} & unwanted


def test_a_library_is_imported_as_if_another_were_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import fails where it is needed; what was imported before stays as it was."""
    monkeypatch.delitem(sys.modules, "zipapp", raising=False)
    with pytest.raises(ImportError, match="zipfile"):
        import_without("zipapp", "zipfile")
    assert sys.modules["zipfile"] is zipfile
    import_without("zipapp", "rich")
    assert "zipapp" in sys.modules


def test_a_library_is_imported_without_a_part_of_its_own() -> None:
    """The names of the part are None, and what imports the part later gets it. In a process that ends after it."""
    code = """
from contracts.wire.optional_imports import import_without_part
import_without_part("xml.dom", "domreg", "getDOMImplementation", "registerDOMImplementation")
import xml.dom
assert xml.dom.getDOMImplementation is None
from xml.dom.domreg import getDOMImplementation
assert getDOMImplementation is not None
import_without_part("xml.dom", "domreg")
assert xml.dom.domreg.getDOMImplementation is getDOMImplementation
"""
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)
