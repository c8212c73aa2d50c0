"""Pages in a real browser: a server for them, the library that draws charts, and Chromium without a window."""

import html
import json
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from tests.support.builds import INSTALL, LEFT_OUT, build, built_once
from tests.support.needs import needs_program

DRAWN = """
  const chart = echarts.getInstanceByDom(document.querySelector("#chart"));
  await new Promise((done) => { chart.on("finished", done); chart.resize(); }); // all lines have moved into place
  const pixels = chart.getDom().querySelector("canvas").getContext("2d").getImageData(0, 0, 800, 500).data;
  const colours = new Set();
  for (let at = 0; at < pixels.length; at += 4) colours.add(pixels.slice(at, at + 4).join());
  const option = chart.getOption();
  const series = option.series.map((each) => ({ type: each.type, data: each.data }));
  seen.chart = { colours: colours.size, series, categories: option.xAxis[0].data };
"""
"""Script that puts what stands in the chart into `seen`."""
_ENDS_WITHIN_S = 100
_PAGE = """<!doctype html><meta charset="utf-8"><title>Runwire</title>
<div id="chart" style="width: 800px; height: 500px"></div>
<img src="/ended" alt="">
<script src="/echarts.js"></script>
<script type="module">
const seen = {};
try {
%s
} catch (error) {
  seen.error = String(error);
}
document.body.dataset.seen = JSON.stringify(seen);
await fetch("/ended", { method: "POST" });
</script>
"""


class Site:
    """A static server on a port of its own; with `gateway`, its front server too: it passes on what is posted.

    Chromium takes its picture once a page is loaded. This page is when its script has ended: the server answers the
    request for an image only then.

    Attributes:
        script: of its page, which may use `echarts` and `await`, and puts what it has seen into `seen`.
        origin: of its pages.
    """

    def __init__(self, echarts: Path, host: str = "127.0.0.1", gateway: str = "") -> None:
        self.script = ""
        self._ended = threading.Event()
        site = self

        class Front(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/":
                    self._give(200, "text/html", (_PAGE % site.script).encode())
                elif self.path == "/echarts.js":
                    self._give(200, "text/javascript", echarts.read_bytes())
                else:
                    site._ended.wait(_ENDS_WITHIN_S if self.path == "/ended" else 0)
                    self._give(404, "text/plain", b"")

            def do_POST(self) -> None:
                if self.path == "/ended":
                    site._ended.set()
                    self._give(204, "text/plain", b"")
                    return
                body = self.rfile.read(int(self.headers["Content-Length"]))
                kind = {"Content-Type": self.headers["Content-Type"]}
                answer = httpx.post(gateway + self.path, content=body, headers=kind, timeout=60)
                self._give(answer.status_code, answer.headers["Content-Type"], answer.content)

            def _give(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Front)
        self.origin = f"http://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def opened(self, folder: Path) -> Any:
        """Open its page in Chromium, wait for its script, and return what it has seen.

        The folder then holds `page.png`, a picture of the page.
        """
        command = [
            str(needs_program("chromium")),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            f"--user-data-dir={folder / 'profile'}",
            "--window-size=820,540",
            f"--screenshot={folder / 'page.png'}",
            "--dump-dom",
            f"{self.origin}/",
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        found = re.search(r'data-seen="([^"]*)"', ran.stdout)
        assert found is not None, ran.stdout[-2000:] + ran.stderr[-2000:]
        return json.loads(html.unescape(found[1]))


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the scripts that drive the browser, with what they and the pages load, at the lock's versions."""
    npm = needs_program("npm")
    with built_once(tmp_path_factory, "browser") as (folder, to_do):
        if to_do:
            shutil.copytree(Path(__file__).parent, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
            build([str(npm), *INSTALL], folder)
    return folder / "playground"


@pytest.fixture(scope="session")
def echarts(scripts: Path) -> Path:
    return scripts.parent / "node_modules" / "echarts" / "dist" / "echarts.min.js"
