"""Serving tools before there is a server, and from files that cannot be served."""

import asyncio
from pathlib import Path

import pytest

from runwire import tool
from runwire.serving import main, serve
from tests.support.needs import free_port
from tests.support.waiting import wait_until


async def test_it_waits_for_a_server_and_can_be_told_to_stop_waiting() -> None:
    """Nothing has to be started in an order."""

    @tool
    async def alone() -> int:
        return 1

    stop = asyncio.Event()
    waiting = asyncio.create_task(serve([alone], "nats://127.0.0.1:1", stop=stop))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    stop.set()
    await asyncio.wait_for(waiting, 5)


async def test_a_server_that_is_not_there_is_named_while_it_is_awaited(caplog: pytest.LogCaptureFixture) -> None:
    """Without the password that its address may hold; told to stop meanwhile, serving stops."""

    @tool(desc="Nothing")
    def nothing() -> None: ...

    stop, port = asyncio.Event(), free_port()
    serving = asyncio.create_task(serve([nothing], f"nats://user:secret@127.0.0.1:{port}", stop=stop))
    await wait_until(lambda: f"NATS at 127.0.0.1:{port}: " in caplog.text, what="it says what it waits for")
    stop.set()
    await serving
    assert "tried again until it answers" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("name", ["RUNWIRE_NATS_USER", "RUNWIRE_NATS_PASSWORD"])
def test_half_a_login_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As services refuse it, and whatever the data folder says; the half that there is stays out of the sentence."""
    file = tmp_path / "tool.py"
    file.write_text("from runwire import tool\n@tool(desc='x')\ndef a() -> None: ...\n")
    monkeypatch.setenv(name, "canary")
    with pytest.raises(
        SystemExit, match="RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD are set together, or neither"
    ) as ended:
        main([file], "nats://127.0.0.1:1")
    assert "canary" not in str(ended.value)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        (
            "from runwire import tool\n@tool(desc='x', idempotnt=True)\ndef a() -> None: ...\n",
            "TypeError: tool() got an unexpected keyword argument 'idempotnt'",
        ),
    ],
)
def test_a_file_that_cannot_be_read_shows_its_author_where(text: str, last: str, tmp_path: Path) -> None:
    """The line of the file and what is wrong with it, without our own calls around them."""
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([file])
    told = str(ended.value)
    assert told.endswith(last)
    assert f'File "{file}", line' in told
    assert "runwire/serving/" not in told
    assert "importlib" not in told
