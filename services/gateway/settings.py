"""Settings of the gateway: environment variables `RUNWIRE_*`."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from services.shared.images.cleaner import ImageSettings
from services.shared.runs.pages.registry import PagesSettings
from services.shared.runs.plan_settings import PlanSettings

PATH_PREFIX = r"(?!/(?:v1|chat|livez|readyz|openapi\.json)(?:/|$))(?:/[A-Za-z0-9._~-]+)+"
"""A path below which a proxy may serve the gateway. It begins with none of the gateway's own."""
_PUBLIC_URL = re.compile(rf"https?://[^/?#@\s]+(?:{PATH_PREFIX})?", re.ASCII)


def _public_url(given: str) -> str:
    url = given.strip().rstrip("/")
    if url and _PUBLIC_URL.fullmatch(url) is None:
        raise ValueError(
            "write scheme, host and path, such as https://example.org/agents; the path does not begin with one of the"
            " gateway's own, such as /v1"
        )
    return url


class GatewaySettings(ImageSettings, PlanSettings, PagesSettings):
    """Where the gateway listens, whom it admits, and how long it waits."""

    host: str = Field(default="127.0.0.1", description="any other address than loopback needs API keys")
    port: int = Field(default=8080, ge=0, le=65535, description="0: the kernel chooses, see the log")
    api_keys_file: Path | None = Field(
        default=None,
        description="lines `tenant sha256hex` with rights and limits, as `python -m services.gateway.auth` prints "
        "them; read again when it changes",
    )
    api_keys: str = Field(default="", description="the same, separated by commas or line breaks")
    public_url: Annotated[str, AfterValidator(_public_url)] = Field(
        default="", description="where clients reach the gateway behind a proxy; addresses in answers begin with it"
    )
    cors_origins: str = Field(
        default="", description="origins whose web pages may call the gateway, exact, separated by commas"
    )
    max_body_bytes: int = Field(default=1 << 20, ge=1024, description="of a JSON body; more is 413")
    max_upload_bytes: int = Field(default=1 << 30, ge=1024, description="of an uploaded artifact; more is 413")
    max_images: int = Field(default=8, ge=1, le=64, description="of one question")
    max_images_bytes: int = Field(default=20 << 20, ge=1024, description="of all images of a question")
    max_open_runs: int = Field(default=1000, ge=1, description="runs of one tenant that have not ended; more is 429")
    max_streams: int = Field(
        default=2000, ge=1, description="connections that wait for runs (event streams, /chat); more is 503"
    )
    max_streams_per_tenant: int = Field(default=500, ge=1, description="the same, of one tenant; more is 429")
    stalled_client_s: float = Field(
        default=30, gt=0, description="seconds in which a client may read nothing of what is sent to it"
    )
    request_head_s: float = Field(
        default=10, gt=0, description="how long the first line and the headers of a request may take"
    )
    keep_alive_s: int = Field(
        default=75, ge=1, description="how long an idle connection stays open; proxies in front close theirs before"
    )
    heartbeat_s: float = Field(default=15, gt=0, description="longest silence on an event stream")
