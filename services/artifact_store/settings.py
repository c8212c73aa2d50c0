"""Settings of the artifact store: environment variables `RUNWIRE_*`, or files named by `RUNWIRE_*_FILE`."""

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from services.runtime.settings import BusSettings


class ArtifactStoreSettings(BusSettings):
    """Where bytes are stored, and for how long."""

    model_config = SettingsConfigDict(hide_input_in_errors=True)

    s3_endpoint: str = Field(
        default="127.0.0.1:9000", description="host:port, or a URL, whose scheme then decides on TLS"
    )
    s3_access_key: SecretStr = SecretStr("")
    s3_access_key_file: Path | None = Field(default=None, description="a secret's file, instead of the key itself")
    s3_secret_key: SecretStr = SecretStr("")
    s3_secret_key_file: Path | None = None
    s3_bucket: str = Field(
        default="runwire", pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="of this deployment alone"
    )
    s3_secure: bool = Field(default=False, description="TLS to the S3 server")
    s3_region: str = "us-east-1"
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
    def _read_secret_files(self) -> Self:
        for name in ("s3_access_key", "s3_secret_key"):
            path: Path | None = getattr(self, f"{name}_file")
            if path is not None:
                object.__setattr__(self, name, SecretStr(path.read_text(encoding="utf-8").strip()))
        if not self.s3_access_key.get_secret_value() or not self.s3_secret_key.get_secret_value():
            # Without keys some servers let everybody in; an open server has to be configured on purpose, elsewhere.
            raise ValueError("RUNWIRE_S3_ACCESS_KEY and RUNWIRE_S3_SECRET_KEY (or their _FILE forms) are needed")
        return self

    def endpoint(self) -> tuple[str, bool]:
        """Return host:port and whether it speaks TLS."""
        if "://" not in self.s3_endpoint:
            return self.s3_endpoint, self.s3_secure
        parts = urlsplit(self.s3_endpoint)
        return parts.netloc, parts.scheme == "https"
