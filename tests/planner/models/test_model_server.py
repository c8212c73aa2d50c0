"""The scripted provider itself, as a process: what system tests start beside the services."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import Script, Seen, answer, words
from tests.support.needs import free_port
from tests.support.server_process import ends_with_block
from tests.support.waiting import wait_until_blocking

ROOT = Path(__file__).resolve().parents[3]


def post(url: str, body: dict[str, Any]) -> bytes:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        return bytes(response.read())


@pytest.fixture
def provider() -> Iterator[str]:
    """A provider in a process of its own; gives its address."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.support.model_server", "--port", str(port)], cwd=ROOT)
    address = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            post(f"{address}/admin/reset", {})
        except OSError:
            return False
        return True

    with ends_with_block(process):
        wait_until_blocking(answers, timeout=30, what="the provider takes requests")
        yield address


def ask(address: str, *messages: dict[str, str]) -> str:
    events = post(f"{address}/v1/chat/completions", {"model": "m", "messages": list(messages), "stream": True}).split(
        b"\n\n"
    )
    chunks = [json.loads(event.removeprefix(b"data: ")) for event in events if event.startswith(b"data: {")]
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def test_a_process_is_scripted_over_http(provider: str) -> None:
    """By order of arrival, by marker, by turn; and it keeps a ledger."""
    user, model = {"role": "user", "content": "about #7"}, {"role": "assistant", "content": "first"}
    post(f"{provider}/admin/say", {"replies": [{"text": words(30)}, {"text": "then this"}]})
    post(f"{provider}/admin/say", {"marker": "#7", "by_turn": True, "replies": [{"text": "first"}, {"text": "second"}]})
    other = {"role": "user", "content": "hello"}
    assert [ask(provider, other) for _ in range(3)] == [words(30), "then this", "then this"]
    assert [ask(provider, user), ask(provider, user, model), ask(provider, user)] == ["first", "second", "first"]
    ledger = json.loads(post(f"{provider}/admin/ledger", {}))["requests"]
    assert [seen["ended"] for seen in ledger] == ["finished"] * 6


def test_without_a_script_there_is_an_answer() -> None:
    """So that a run that nobody scripted ends."""
    assert Script().reply_to(Seen(0, "/v1/chat/completions", {}, {})) == answer("Nothing was scripted.")
