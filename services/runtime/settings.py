"""Settings of every service: environment variables `RUNWIRE_*`, read once at start."""

import os
import re
import sys
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError
from pydantic_settings import PydanticBaseSettingsSource as Source

from contracts.wire.faults import describe
from contracts.wire.operation import EXIT_WRONG_SETTINGS

_QUOTED = re.compile(r"""\s*(["']).*\1\s*""", re.DOTALL)
_FIELD = re.compile(r'field "(\w+)"')


class BusSettings(BaseSettings):
    """How a service reaches NATS, logs, and reports its health."""

    model_config = SettingsConfigDict(env_prefix="RUNWIRE_", extra="ignore", env_ignore_empty=True)

    nats_url: str = Field(default="nats://127.0.0.1:4222", description="comma-separated for several servers")
    nats_user: str | None = Field(
        default=None, description="with nats_password; takes precedence over a login in the URL"
    )
    nats_password: SecretStr | None = Field(default=None, description="with nats_user; set both or neither")
    nats_password_file: Path | None = Field(default=None, description="a secret's file, instead of the password itself")
    nats_ca: Path | None = Field(
        default=None, description="PEM file of the authority of NATS; demands TLS, as tls:// in the URL does"
    )
    replicas: int = Field(default=1, ge=1, le=5, description="replicas of every stream; 3 on a cluster")
    ack_wait_s: float = Field(
        default=2.0, gt=0, description="2 on a single server, 10 on a cluster (a leader change takes 5 to 8)"
    )
    health_host: str = Field(
        default="127.0.0.1",
        description="of the health port, which asks for no key: let only the network of your monitoring reach it",
    )
    health_port: int = Field(
        default=0,
        ge=0,
        le=65535,
        description="of /livez, /readyz and /metrics, but for the gateway; 0: any, see the log",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="`debug`, `info`, `warning`, `error`"
    )
    log_format: Literal["json", "console"] = Field(default="json", description="on stderr; `console` for people")
    graceful_timeout_s: float = Field(
        default=5.0, ge=0, description="for work in flight when the service stops (SIGTERM)"
    )
    stall_exit_s: float = Field(
        default=10.0, ge=0, description="seconds of a blocked event loop after which the process ends itself; 0: never"
    )
    max_deliveries: int = Field(
        default=20, ge=2, description="started handlings of one message, after which it is kept in DEAD as poison"
    )

    @classmethod
    def settings_customise_sources(cls, *_: Any, **known: Any) -> tuple[Source, ...]:
        """Look in arguments and in the environment: to look for files that nobody names takes as long."""
        return known["init_settings"], known["env_settings"]

    @model_validator(mode="before")
    @classmethod
    def _has_no_quotes(cls, values: dict[str, object]) -> dict[str, object]:
        # A shell takes quotes away; `docker run --env-file` and Kubernetes secrets do not.
        for name, value in values.items():
            if isinstance(value, str) and _QUOTED.fullmatch(value):
                raise ValueError(f"{_variable((name,))}: the value is in quotes; leave them out")
        return values

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        if self.nats_password_file is not None:
            password = text_of(self.nats_password_file, "RUNWIRE_NATS_PASSWORD_FILE").strip()
            object.__setattr__(self, "nats_password", SecretStr(password))
        if (self.nats_user is None) != (self.nats_password is None):
            raise ValueError(
                "RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD are set together, or neither; the password may be in"
                " RUNWIRE_NATS_PASSWORD_FILE"
            )
        if self.nats_ca is not None and "BEGIN CERTIFICATE" not in text_of(self.nats_ca, "RUNWIRE_NATS_CA"):
            raise ValueError("RUNWIRE_NATS_CA: the file holds no certificate in PEM form")
        return self

    @property
    def demands_tls(self) -> bool:
        """Whether a server without TLS is refused."""
        return self.nats_ca is not None or any(url.startswith("tls://") for url in self.nats_url.split(","))

    @property
    def ack_heartbeat_s(self) -> float:
        """Seconds between heartbeats of a message in work: a quarter of the acknowledgement time."""
        return self.ack_wait_s / 4


Settings = TypeVar("Settings", bound=BusSettings)


def read_settings(kind: type[Settings]) -> Settings:
    """Read settings. Raises SystemExit, after a sentence on stderr for each wrong one, which shows no value."""
    try:
        return kind()
    except ValidationError as error:
        faults = describe(error, limit=None, name_of=_variable)
    except SettingsError as error:
        field = _FIELD.search(str(error))
        variable = _variable(field.groups()) if field else "a variable RUNWIRE_*"
        faults = f'{variable}: is not the JSON that is needed here, such as {{"name": …}} ({error.__cause__})'
    raise misconfigured(f"wrong settings: {faults.replace('Value error, ', '')}")


def misconfigured(reason: str) -> SystemExit:
    """Write the reason to stderr. Return the exception to raise: its exit code says that a restart does not help."""
    sys.stderr.write(f"{reason}\n")
    return SystemExit(EXIT_WRONG_SETTINGS)


def text_of(file: Path, variable: str) -> str:
    """Return what the file of a setting says, without a byte order mark. Raises ValueError, which names the setting."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{variable}: {file} cannot be read ({type(error).__name__})") from error


def _variable(path: tuple[str | int, ...]) -> str:
    if not path:  # A validator of all settings names the variable itself.
        return ""
    name, *rest = path
    return f"RUNWIRE_{str(name).upper()}{''.join(f'[{part!r}]' for part in rest)}"


def environment_without_settings() -> dict[str, str]:
    """Return the environment for a module of ours that needs no settings, which contain secrets."""
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT") if name in os.environ}
    return kept | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
