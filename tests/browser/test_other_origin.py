"""Pages of other origins in a real browser: what one in RUNWIRE_CORS_ORIGINS may do, and what none else may."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from services.gateway.auth.key_lines import new_key
from tests.browser.conftest import DRAWN, Site
from tests.browser.sales_tools import MONTHS, SALES
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_until_blocking

pytestmark = pytest.mark.timeout(180)

DOCS = ROOT / "docs" / "http.md"
KEY, LINE = new_key("acme")
BEARER = {"Authorization": f"Bearer {KEY}"}
TOOLS = Path(__file__).parent / "sales_tools.py"
HEAD = """
  const gateway = %s, key = %s;
  const bearer = { Authorization: `Bearer ${key}` };
  const answerOf = async (path, init) => {
    try {
      const response = await fetch(gateway + path, init);
      return { status: response.status, headers: Object.fromEntries(response.headers), body: await response.text() };
    } catch (error) {
      return { error: String(error) };
    }
  };
"""
SNIPPETS = """
  {
%s
  }
  const events = seen.events = [];
  const show = (event) => events.push(event.type);
  {
%s
  }
"""
ANSWERS = """
  const json = { ...bearer, "Content-Type": "application/json" };
  seen.keyless = await answerOf("/v1/runs");
  seen.misspelt = await answerOf("/chat", { method: "POST", headers: json, body: '{"question": "x"}' });
  const body = '{"query": "Brew coffee"}';
  const once = { ...json, "Idempotency-Key": "once" };
  seen.accepted = await answerOf("/v1/runs", { method: "POST", headers: once, body });
  seen.again = await answerOf("/v1/runs", { method: "POST", headers: once, body });
  const run = seen.accepted.headers.location;
  const stream = await fetch(`${gateway}${run}/events`, { headers: bearer });
  const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  while (!text.includes("event: run_started")) text += (await reader.read()).value;
  seen.limited = await answerOf(`${run}/events`, { headers: bearer });
  seen.cancelled = await answerOf(`${run}/cancel`, { method: "POST", headers: bearer });
  for (let read = await reader.read(); !read.done; read = await reader.read()) text += read.value;
  seen.text = text;
  const last = [...text.matchAll(/^id: (.*)$/gm)].at(-1)[1];
  seen.resumed = await answerOf(`${run}/events`, { headers: { ...bearer, "Last-Event-ID": last } });
  seen.stored = await answerOf("/v1/artifacts?filename=a.txt", { method: "POST", headers: bearer, body: "12345678" });
  seen.range = await answerOf(seen.stored.headers.location, { headers: { ...bearer, Range: "bytes=2-3" } });
  seen.deleted = await answerOf(seen.stored.headers.location, { method: "DELETE", headers: bearer });
"""
SOURCE = """
  const question = { method: "POST", headers: json, body: '{"query": "Analyze the sales of the year"}' };
  const { ticket_url } = JSON.parse((await answerOf("/v1/runs", question)).body);
  const { events_url } = JSON.parse((await answerOf(ticket_url, { method: "POST", headers: bearer })).body);
  echarts.getInstanceByDom(document.querySelector("#chart")).clear();
  {
%s
    while (source.readyState !== EventSource.CLOSED) await new Promise((soon) => setTimeout(soon, 20));
  }
"""
FOREIGN = """
  seen.keyed = await answerOf("/v1/runs", { headers: bearer });
  seen.keyless = await answerOf("/v1/runs");
  seen.health = await answerOf("/readyz");
  const body = '{"query": "Brew coffee"}', simple = { method: "POST", headers: { "Content-Type": "text/plain" }, body };
  seen.simple = await answerOf("/v1/runs", simple);
  seen.blind = await answerOf("/v1/runs", { ...simple, mode: "no-cors" });
  seen.deleted = await answerOf("/v1/runs/x", { method: "DELETE", headers: bearer });
"""


@pytest.fixture(scope="module")
def sites(echarts: Path) -> Iterator[tuple[Site, Site]]:
    """A site whose origin is listed, and another one."""
    with Site(echarts, host="localhost") as listed, Site(echarts) as foreign:
        yield listed, foreign


@pytest.fixture(scope="module")
def gateway(sites: tuple[Site, Site], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A whole deployment with a key, one stream per tenant, and the tools; its gateway's URL."""
    folder = tmp_path_factory.mktemp("origins")
    server = NatsServer(folder / "nats")
    server.start()
    with S3Server("rclone", folder / "s3") as s3:
        env = {
            **s3.settings,
            "RUNWIRE_API_KEYS": LINE,
            "RUNWIRE_CORS_ORIGINS": sites[0].origin,
            "RUNWIRE_MAX_STREAMS_PER_TENANT": "1",
            "RUNWIRE_DISCOVER_S": "0.5",
        }
        with Stack(
            server.url,
            folder,
            env,
            planners=1,
            tool_runners=1,
            artifact_stores=1,
            tools=TOOLS,
            tool_copies=1,
        ) as stack:
            wait_until_blocking(
                lambda: "analyze_table" in tools_of(stack.url), timeout=30, what="the tools are offered"
            )
            yield stack.url
    server.kill()


def tools_of(gateway: str) -> set[str]:
    """The names of the tools that runs can use."""
    return {tool["name"] for tool in httpx.get(f"{gateway}/v1/tools", headers=BEARER).json()["tools"]}


def test_a_listed_page_draws_streams_and_reads_errors(gateway: str, sites: tuple[Site, Site], tmp_path: Path) -> None:
    """With the lines of docs/http.md."""
    site = sites[0]
    chat, stream, source = re.findall(r"```js\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    head = HEAD % (json.dumps(gateway), json.dumps(KEY))
    site.script = head + SNIPPETS % (chat, stream) + ANSWERS + SOURCE % source + DRAWN
    seen = site.opened(tmp_path)
    assert "error" not in seen

    assert seen["chart"]["colours"] > 10
    assert seen["chart"]["categories"] == MONTHS
    assert [series["data"] for series in seen["chart"]["series"]] == list(SALES.values())
    assert (tmp_path / "page.png").stat().st_size > 5000
    assert {"run_started", "observed", "chunk"} <= set(seen["events"])
    assert seen["events"][-1] == "done"

    assert (seen["keyless"]["status"], "API key" in seen["keyless"]["body"]) == (401, True)
    assert seen["keyless"]["headers"]["www-authenticate"] == "Bearer"
    assert (seen["misspelt"]["status"], json.loads(seen["misspelt"]["body"])["code"]) == (422, "invalid_input")
    assert (seen["accepted"]["status"], seen["again"]["body"]) == (202, seen["accepted"]["body"])
    assert seen["accepted"]["headers"]["location"].endswith(seen["accepted"]["headers"]["runwire-run"])
    assert (seen["limited"]["status"], seen["limited"]["headers"]["retry-after"]) == (429, "5")

    assert seen["cancelled"]["status"] == 202
    assert "event: cancelled" in seen["text"]
    assert seen["resumed"]["status"] == 204
    assert (seen["stored"]["status"], seen["range"]["status"], seen["range"]["body"]) == (201, 206, "34")
    assert {"etag", "content-range", "content-disposition", "accept-ranges"} <= seen["range"]["headers"].keys()
    assert seen["deleted"]["status"] == 204


def test_another_page_reads_nothing_and_starts_nothing(gateway: str, sites: tuple[Site, Site], tmp_path: Path) -> None:
    """Not even with a key."""
    site = sites[1]
    site.script = HEAD % (json.dumps(gateway), json.dumps(KEY)) + FOREIGN
    seen = site.opened(tmp_path)
    assert seen.pop("blind") == {"status": 0, "headers": {}, "body": ""}
    assert set(seen) == {"keyed", "keyless", "health", "simple", "deleted"}
    assert all(answer == {"error": "TypeError: Failed to fetch"} for answer in seen.values())
    asked = [run["query"] for run in httpx.get(f"{gateway}/v1/runs", headers=BEARER).json()["runs"]]
    assert asked.count("Brew coffee") <= 1
