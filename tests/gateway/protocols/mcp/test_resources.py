"""Artifacts as resources: the links of a result are read by the official client, and by nobody who may not see them."""

import base64
import io
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, ResourceLink, TextResourceContents
from PIL import Image

from contracts.tools.messages import ToolSpec
from tests.gateway.protocols.mcp.conftest import KEYS, PICTURE, TABLE, running
from tests.gateway.protocols.mcp.test_routes import connected
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stores import serving as storing


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_what_a_call_has_made_is_read(
    own_nats_server: NatsServer, rclone: S3Server, provider: ModelServer, tmp_path: Path, era: str
) -> None:
    """A text as text and an image as bytes, with their types; for a foreign key and a made-up URI there is none."""
    lines = ",".join(line for _, line in KEYS.values())
    specs = {"draw": ToolSpec(name="draw")}
    url = own_nats_server.url
    async with running(url, provider, tmp_path, specs, api_keys=lines) as mcp, storing(rclone, url):
        async with connected(mcp, era) as client:
            assert (await client.list_resources()).resources == []
            templates = (await client.list_resource_templates()).resource_templates
            assert [each.uri_template for each in templates] == [
                "runwire://artifacts/{artifact_id}",
                "runwire://runs/{run_id}",
            ]
            made = await client.call_tool("draw", {})
            links = [each for each in made.content if isinstance(each, ResourceLink)]
            assert [each.mime_type for each in links] == ["image/png", "text/plain; charset=utf-8"]
            picture, table = [(await client.read_resource(each.uri)).contents for each in links]
            assert [(type(each), each.mime_type, each.uri) for each in (*picture, *table)] == [
                (BlobResourceContents, "image/png", links[0].uri),
                (TextResourceContents, "text/plain; charset=utf-8", links[1].uri),
            ]
            with Image.open(io.BytesIO(base64.b64decode(picture[0].blob))) as shown:
                assert shown.tobytes() == PICTURE.tobytes()
            assert table[0].text == TABLE
        for key in ("foreign", "pinned"):
            async with connected(mcp, era, key) as client:
                for uri in (*(each.uri for each in links), f"{links[0].uri}/..", "runwire://artifacts/"):
                    with pytest.raises(MCPError, match="no such resource"):
                        await client.read_resource(uri)
