"""The configurations of docs/proxies.md, each in front of a gateway."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from services.messaging.connection import Bus
from tests.support.gateways import ROOT, Served, Writer, serving_as
from tests.support.nats_server import NatsServer
from tests.support.needs import free_port, needs_program
from tests.support.waiting import wait_until

_PAGE = (ROOT / "docs" / "proxies.md").read_text(encoding="utf-8")
_SNIPPETS = dict(re.findall(r"```(nginx|haproxy|caddyfile)\n(.*?)```", _PAGE, re.DOTALL))
_KEPT_IN = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
#: Language of the snippet -> arguments of the program, what stands around the snippet, and what is replaced in it.
_PROXIES = {
    "nginx": (
        ["nginx", "-p", "{folder}", "-c", "{file}", "-e", "{folder}/errors"],
        "daemon off; pid {folder}/pid; events {{}}\nhttp {{ access_log off; "
        + " ".join(f"{each}_temp_path {{folder}}/{each};" for each in _KEPT_IN)
        + "\n{snippet}\n}}",
        {"listen 80;": "listen 127.0.0.1:{port};"},
    ),
    "haproxy": (["haproxy", "-f", "{file}"], "{snippet}", {"bind :80": "bind 127.0.0.1:{port}"}),
    "caddyfile": (
        ["caddy", "run", "--adapter", "caddyfile", "--config", "{file}"],
        "{{\n admin off\n auto_https off\n}}\n{snippet}",
        {"example.org {": "http://example.org:{port} {\n bind 127.0.0.1"},
    ),
}


@asynccontextmanager
async def proxied(language: str, served: Served, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the proxy, as one of example.org."""
    arguments, around, replaced = _PROXIES[language]
    binary, port, snippet = needs_program(arguments[0]), free_port(), _SNIPPETS[language]
    for old, new in {"127.0.0.1:8080": served.url.removeprefix("http://"), **replaced}.items():
        assert old in snippet
        snippet = snippet.replace(old, new.replace("{port}", str(port)))
    file = folder / "configuration"
    file.write_text(around.format(folder=folder, snippet=snippet), encoding="utf-8")
    command = [str(binary), *(each.format(file=file, folder=folder) for each in arguments[1:])]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env={"HOME": str(folder)})
    headers = {**served.http.headers, "Host": "example.org"}
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=20) as http:

            async def answers() -> bool:
                assert process.returncode is None, (folder / "log").read_text(errors="replace")
                try:
                    return (await http.get("/agents/readyz")).status_code == 200
                except httpx.TransportError:
                    return False

            await wait_until(answers, what=f"{binary.name} answers")
            yield http
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("language", _PROXIES)
async def test_it_works_as_documented(language: str, shared_nats: NatsServer, bus: Bus, tmp_path: Path) -> None:
    """Streams come piece by piece, connections are kept, large bodies pass, and addresses have the path."""
    public = "http://example.org/agents"
    async with (
        serving_as(shared_nats.url, "proxied", public_url=public) as served,
        proxied(language, served, tmp_path) as http,
    ):
        writer = Writer(bus, "proxied")
        await writer.open()
        async with http.stream("GET", f"/agents/v1/runs/{writer.run}/events") as streamed:
            assert streamed.status_code == 200, await streamed.aread()
            lines = streamed.aiter_lines()
            for text in ("one", "two"):  # The next is written when the last has arrived.
                await writer.chunk(text)
                while f'"{text}"' not in await asyncio.wait_for(anext(lines), 10):
                    pass
            await writer.done()
            assert "event: done" in [line async for line in lines]
        accepted = [await http.post("/agents/v1/runs", json={"query": "hello"}) for _ in range(20)]
        assert {answer.status_code for answer in accepted} == {202}
        run = accepted[0].json()
        assert accepted[0].headers["location"] == run["url"] == f"{public}/v1/runs/{run['run_id']}"
        assert len(served.server.server_state.connections) < len(accepted)
        large = await http.post("/agents/v1/artifacts", content=b"x" * (3 << 20))
        assert large.status_code == 201, large.text
        assert large.headers["location"].startswith(f"{public}/v1/artifacts/")


def test_all_snippets_of_the_page_are_tried() -> None:
    """One for each proxy."""
    assert _SNIPPETS.keys() == _PROXIES.keys()
