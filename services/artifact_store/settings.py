"""Settings of the artifact store: environment variables `RUNWIRE_*`, or files named by `RUNWIRE_*_FILE`."""

import re
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import BusSettings, text_of

_AWS = re.compile(r"s3[.-](?:dualstack\.)?(?:([a-z]{2}(?:-[a-z]+)+-\d)\.)?amazonaws\.com(?:\.cn)?")


class Endpoint(NamedTuple):
    """Host and port of the S3 server, whether it speaks TLS, and its region."""

    host: str
    secure: bool
    region: str


class ArtifactStoreSettings(BusSettings):
    """Where bytes are stored, and for how long."""

    model_config = SettingsConfigDict(hide_input_in_errors=True)

    s3_endpoint: str = Field(
        default="127.0.0.1:9000", description="host:port, or a URL, whose scheme then decides on TLS"
    )
    s3_access_key: SecretStr = Field(default=SecretStr(""), description="needed, here or in the file")
    s3_access_key_file: Path | None = Field(default=None, description="a secret's file, instead of the key itself")
    s3_secret_key: SecretStr = Field(default=SecretStr(""), description="needed, here or in the file")
    s3_secret_key_file: Path | None = Field(default=None, description="a secret's file, read again for each request")
    s3_bucket: str = Field(
        default="runwire", pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="of this deployment alone"
    )
    s3_secure: bool = Field(default=False, description="TLS to the S3 server")
    s3_on_demand: bool = Field(default=False, description="no look at the S3 server before its first use starts it")
    s3_region: str | None = Field(default=None, description="the one in an address of AWS, else us-east-1")
    artifact_max_bytes: int = Field(
        default=2 << 30, ge=1, description="of one artifact; at most 5 GB, the limit of one S3 put"
    )
    artifact_default_days: float = Field(
        default=30, gt=0, description="of artifacts that belong to no run and name no time of their own"
    )
    artifact_grace_s: float = Field(default=3600, gt=0, description="how long bytes without a reference are left alone")
    artifact_sweep_s: float = Field(default=3600, gt=0, description="between two sweeps for bytes without a reference")
    artifact_uploads: int = Field(
        default=16, ge=1, le=256, description="large uploads at once; more are refused as retryable"
    )

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        self.endpoint()
        if re.search(r"\.\.|^[\d.]+$", self.s3_bucket):
            raise ValueError("RUNWIRE_S3_BUCKET is no name that S3 takes: no two dots in a row, and no address")
        if not all(self.keys()):
            # Without keys some servers let everybody in; an open server has to be configured on purpose, elsewhere.
            raise ValueError("RUNWIRE_S3_ACCESS_KEY and RUNWIRE_S3_SECRET_KEY (or their _FILE forms) are needed")
        return self

    def keys(self) -> tuple[str, str]:
        """Return the access key and the secret key, as their files are now. Raises ValueError."""
        access, secret = (
            text_of(file, variable).strip() if file else key.get_secret_value()
            for key, file, variable in (
                (self.s3_access_key, self.s3_access_key_file, "RUNWIRE_S3_ACCESS_KEY_FILE"),
                (self.s3_secret_key, self.s3_secret_key_file, "RUNWIRE_S3_SECRET_KEY_FILE"),
            )
        )
        return access, secret

    def endpoint(self) -> Endpoint:
        """Return where the S3 server is. Raises ValueError."""
        given = self.s3_endpoint.strip()
        parts = urlsplit(given if "://" in given else f"//{given}")
        host, port = parts.hostname, parts.port  # The latter raises ValueError.
        is_more = port == 0 or parts.path.strip("/") or parts.query or parts.username
        if host is None or is_more or parts.scheme not in {"", "http", "https"}:
            raise ValueError("RUNWIRE_S3_ENDPOINT is host:port or a URL; the bucket is named by RUNWIRE_S3_BUCKET")
        aws = _AWS.fullmatch(host)
        secure = parts.scheme == "https" or (not parts.scheme and (self.s3_secure or aws is not None))
        return Endpoint(parts.netloc, secure, self.s3_region or (aws and aws[1]) or "us-east-1")
