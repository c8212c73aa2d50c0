"""The lines of JavaScript in docs/artifacts.md draw a chart in a real browser, from what a real gateway answers."""

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from tests.examples.conftest import EXAMPLES, build, built_once
from tests.support.nats_server import NatsServer
from tests.support.needs import needs_program
from tests.support.s3_servers import S3Server
from tests.support.stack import Stack

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]

DOCS = EXAMPLES.parent / "docs" / "artifacts.md"
PAGE = """<!doctype html><meta charset="utf-8"><title>Chart</title>
<div id="chart" style="width: 800px; height: 500px"></div>
<script src="/echarts.js"></script>
<script type="module">
try {
%s
  const chart = echarts.getInstanceByDom(document.querySelector("#chart"));
  await new Promise((done) => setTimeout(done, 3000)); // until it has moved into place; virtual time, so nobody waits
  const pixels = chart.getDom().querySelector("canvas").getContext("2d").getImageData(0, 0, 800, 500).data;
  const colours = new Set();
  for (let at = 0; at < pixels.length; at += 4) colours.add(pixels.slice(at, at + 4).join());
  const option = chart.getOption();
  const series = option.series.map((each) => ({ type: each.type, data: each.data }));
  document.body.dataset.drawn = JSON.stringify({ colours: colours.size, series, categories: option.xAxis[0].data });
} catch (error) {
  document.body.dataset.drawn = JSON.stringify({ error: String(error) });
}
</script>
"""


@pytest.fixture(scope="session")
def echarts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that the page loads, at the version of the lock."""
    npm = needs_program("npm")
    with built_once(tmp_path_factory, "echarts") as (folder, to_do):
        if to_do:
            for name in ("package.json", "package-lock.json", ".npmrc"):
                shutil.copy(Path(__file__).parent / "browser" / name, folder)
            build([str(npm), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"], folder)
    return folder / "node_modules" / "echarts" / "dist" / "echarts.min.js"


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


@pytest.fixture
def site(gateway: str, echarts: Path) -> Iterator[str]:
    """The page, ECharts and the gateway under one origin, as a deployment puts them behind its front server."""
    snippet = re.search(r"```js\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert snippet is not None
    files = {
        "/": ("text/html", (PAGE % snippet[1]).encode()),
        "/echarts.js": ("text/javascript", echarts.read_bytes()),
    }

    class Front(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._give(200, *files.get(self.path, ("text/plain", b"")))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer = httpx.post(
                gateway + self.path, content=body, headers={"Content-Type": self.headers["Content-Type"]}, timeout=60
            )
            self._give(answer.status_code, answer.headers["Content-Type"], answer.content)

        def _give(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_the_snippet_draws_the_chart_of_a_run(site: str, tmp_path: Path) -> None:
    """Lines with a value per period, and not a blank canvas."""
    chromium = needs_program("chromium")
    screenshot = tmp_path / "chart.png"
    command = [
        str(chromium),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
    ]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--window-size=820,540", f"--screenshot={screenshot}"]
    command += ["--virtual-time-budget=60000", "--dump-dom", site]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = re.search(r'data-drawn="([^"]*)"', ran.stdout)
    assert found is not None, ran.stdout[-2000:] + ran.stderr[-2000:]
    drawn = json.loads(found[1].replace("&quot;", '"').replace("&amp;", "&"))
    assert "error" not in drawn
    assert drawn["colours"] > 10
    assert drawn["categories"]
    assert all(len(series["data"]) == len(drawn["categories"]) for series in drawn["series"])
    assert screenshot.stat().st_size > 5000
