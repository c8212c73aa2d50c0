"""Announcements of tools: an unusable one is refused with a reason and does no harm."""

import json
from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from services.tool_runner.discovery import announcements


def info(spec: Any, *, subject: str = "tool.echo", version: str = "1.0.0") -> bytes:
    text = spec if isinstance(spec, str) else json.dumps(spec)
    endpoint = {"name": "echo", "subject": subject, "metadata": {"runwire.spec": text}}
    return json.dumps({"name": "echo", "id": "X1", "version": version, "endpoints": [endpoint]}).encode()


def test_a_tool_announces_itself() -> None:
    """Its one key of metadata holds the specification; what it leaves out has defaults."""
    (announced,) = announcements.read_announcement(info({"name": "echo", "timeout_s": 5, "new_field": 1}))

    assert announced.spec.name == "echo"
    assert announced.spec.timeout_s == 5
    assert not announced.spec.idempotent
    assert (announced.version, announced.instance) == ("1.0.0", "X1")


def test_equal_specifications_have_equal_digests() -> None:
    """However they were written: a default that is left out, a whole number for a fraction."""
    first, second = (
        announcements.read_announcement(info(spec))[0]
        for spec in ({"name": "echo"}, {"timeout_s": 30, "name": "echo", "tags": []})
    )
    assert first.digest == second.digest == announcements.checked(ToolSpec(name="echo")).digest()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[1]", "no list of endpoints"),
        (b'{"endpoints": 3}', "no list of endpoints"),
        (info("{"), "Invalid JSON"),
        (info([]), "object"),
        (info({"description": "x"}), "name"),
        (info({"name": "a.b"}), "tool name"),
        (info({"name": "*"}), "tool name"),
        (info({"name": "x" * 65}), "tool name"),
        (info({"name": "echo"}, subject="tool.other"), "must listen on tool.echo"),
        (info({"name": "echo", "timeout_s": -1}), "timeout_s"),
        (info({"name": "echo", "tags": ["mcp:files"]}), "is for tools of MCP servers"),
        (info({"name": "echo", "input_schema": {"type": 12}}), "cannot be used"),
        (info({"name": "echo", "input_schema": {"type": "string"}}), "must describe an object"),
        (info({"name": "echo", "input_schema": {"$ref": "https://example.org/schema.json"}}), "another document"),
        (info({"name": "echo", "output_schema": {"$ref": "file:///etc/passwd"}}), "another document"),
        (info({"name": "echo", "input_schema": {"properties": {"a": {"pattern": "("}}}}), "cannot be used"),
        (info({"name": "echo", "description": "x" * 300_000}), "at most"),
        (info('{"name": "echo", "input_schema": ' + '{"not": ' * 600 + "{}" + "}" * 600 + "}"), "cannot be used"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    """No announcement crashes the tool runner, or makes it fetch anything."""
    with pytest.raises(announcements.InvalidAnnouncement, match=reason):
        announcements.read_announcement(data)


def announced(version: str, description: str = "") -> announcements.Announcement:
    spec = announcements.checked(ToolSpec(name="echo", description=description))
    return announcements.Announcement(spec, spec.digest(), version, version)


def test_the_highest_version_counts() -> None:
    """It precedes the tools file and pre-releases. Versions are compared as numbers."""
    several = [announced(version) for version in ("", "1.10.0-rc.1", "1.9.9", "1.10.0", "nonsense", "1.10.0-rc.2")]
    assert announcements.choose(several).version == "1.10.0"
    assert announcements.choose(several[:2]).version == "1.10.0-rc.1"
    assert sorted(["1.0.0", "1.0.0-a.10", "1.0.0-a.9", "1.0.0-a.b", "0.9.9", "x"], key=announcements.rank) == [
        "x",
        "0.9.9",
        "1.0.0-a.9",
        "1.0.0-a.10",
        "1.0.0-a.b",
        "1.0.0",
    ]
