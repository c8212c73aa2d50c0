"""Serving tools before there is a server, and from files that cannot be served."""

import asyncio
from pathlib import Path

import pytest

from runwire import tool
from runwire.serving import main, serve
from tests.support.needs import free_port
from tests.support.waiting import wait_until


async def test_a_missing_server_is_logged_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    """Without the password in its address."""

    @tool(desc="Nothing")
    def nothing() -> None: ...

    stop, port = asyncio.Event(), free_port()
    serving = asyncio.create_task(serve([nothing], f"nats://user:secret@127.0.0.1:{port}", stop=stop))
    await wait_until(lambda: f"NATS at 127.0.0.1:{port}: " in caplog.text, what="it says what it waits for")
    stop.set()
    await serving
    assert "tried again until it answers" in caplog.text
    assert "secret" not in caplog.text


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
def test_a_file_that_fails_shows_its_author_the_line(text: str, last: str, tmp_path: Path) -> None:
    """And the error, without frames of Runwire."""
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([file])
    message = str(ended.value)
    assert message.splitlines()[-1].startswith(last)
    assert f'File "{file}", line' in message
    assert "runwire/serving/" not in message
    assert "importlib" not in message
