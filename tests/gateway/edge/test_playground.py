"""The playground's files: which ones are answered, with what headers, and where a browser is sent."""

import re

from tests.support.gateways import serving
from tests.support.nats_server import NatsServer


async def test_the_page_is_strict_and_its_files_are_kept(nats_server: NatsServer) -> None:
    """The page is asked for each time; an asset never again. No name becomes a path."""
    async with serving(nats_server.url) as served:
        page = await served.http.get("/playground")
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["cache-control"] == "no-cache"
        assert "default-src 'none'; script-src 'self'" in page.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        names = re.findall(r'(?:src|href)="([^"]*)"', page.text)
        assert len(names) == 3
        assert all(re.fullmatch(r"playground/assets/[\w-]+-[\w-]{8}\.(?:js|css|svg)", name) for name in names)
        first_view = 0
        for name in names:
            asset = await served.http.get(f"/{name}")
            assert asset.status_code == 200
            assert "immutable" in asset.headers["cache-control"]
            assert asset.headers["content-encoding"] == "gzip"
            first_view += int(asset.headers["content-length"])
        assert first_view < 150_000
        for name in ("..%2Findex.html", "%2e%2e", "nothing.js"):
            assert (await served.http.get(f"/playground/assets/{name}")).status_code == 404


async def test_a_browser_is_sent_to_it_and_others_are_told(nats_server: NatsServer) -> None:
    """By what they accept; the address is relative, so it holds behind a proxy."""
    async with serving(nats_server.url) as served:
        browser = await served.http.get("/", headers={"Accept": "text/html,*/*;q=0.8"})
        assert (browser.status_code, browser.headers["location"]) == (303, "playground")
        assert "curl" in (await served.http.get("/", headers={"Accept": "*/*"})).text
