"""The lines of JavaScript in docs/artifacts.md draw a chart in a real browser, from what a real gateway answers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.conftest import DRAWN, Site
from tests.examples.conftest import EXAMPLES
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import Stack

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

DOCS = EXAMPLES.parent / "docs" / "artifacts.md"


@pytest.fixture
def gateway(own_nats_server: NatsServer, tmp_path: Path) -> Iterator[str]:
    """A whole deployment with the example tools; its gateway's URL."""
    with S3Server("rclone", tmp_path / "s3") as s3:
        tools = EXAMPLES / "demo" / "table.py"
        with Stack(
            own_nats_server.url,
            tmp_path,
            s3.settings,
            planners=1,
            tool_runners=1,
            artifact_stores=1,
            tools=tools,
            tool_copies=1,
        ) as stack:
            yield stack.url


def test_the_snippet_draws_the_chart_of_a_run(gateway: str, echarts: Path, tmp_path: Path) -> None:
    """Lines with a value per period, and not a blank canvas. Page and gateway are one origin, behind a front server."""
    snippet = re.search(r"```js\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert snippet is not None
    with Site(echarts, gateway=gateway) as site:
        site.script = snippet[1] + DRAWN
        seen = site.opened(tmp_path)
    assert "error" not in seen
    chart = seen["chart"]
    assert chart["colours"] > 10
    assert chart["categories"]
    assert all(len(series["data"]) == len(chart["categories"]) for series in chart["series"])
    assert (tmp_path / "page.png").stat().st_size > 5000
