"""What the README shows works as it stands."""

import re
import sys
from pathlib import Path

import pytest
from nats.aio.client import Client

from tests.examples.conftest import EXAMPLES, Start, served
from tests.runwire.serving.conftest import call, discover
from tests.support.nats_server import NatsServer

BLOCKS = re.findall(r"^```python\n(.*?)^```", (EXAMPLES / "README.md").read_text(), re.DOTALL | re.MULTILINE)
READMES = sorted(path for path in EXAMPLES.rglob("README.md") if "node_modules" not in path.parts)


@pytest.mark.parametrize("block", [0, 1], ids=["plain", "sdk"])
async def test_the_tool_in_ten_lines(
    client: Client, start: Start, nats_server: NatsServer, tmp_path: Path, block: int
) -> None:
    """Both forms of the same tool are discovered and answer."""
    program = tmp_path / "weekday.py"
    program.write_text(BLOCKS[block].replace("nats://127.0.0.1:4222", nats_server.url))
    assert len(BLOCKS) == 2
    await start(served(str(program)) if block == 1 else [sys.executable, str(program)], nats_server)
    spec = await discover(client, "weekday")
    assert spec.idempotent
    assert spec.input_schema["properties"]["date"]["format"] == "date"
    answer = {"answer": "2026-02-28 is a Saturday"}
    assert await call(client, "weekday", {"date": "2026-02-28"}) == ("result", answer)


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_links_lead_somewhere(readme: Path) -> None:
    """Every file that is named is there."""
    for target in re.findall(r"\]\(([^)]+)\)", readme.read_text()):
        assert (readme.parent / target.partition("#")[0]).exists(), target
