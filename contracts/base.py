"""What every message has in common.

Rule 1: messages are frozen; a changed message is a new message.
Rule 2: a field that a newer peer added is ignored, never fatal; a version that we do not know is refused
(`records.Record`).
Rule 3: this package imports pydantic and nothing else, so that other projects can vendor it.
"""

from pydantic import BaseModel, ConfigDict


class Message(BaseModel):
    """One thing that a service says to another."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, ser_json_bytes="base64", val_json_bytes="base64"
    )


class HttpInput(BaseModel):
    """A body that a person's program sends to the gateway: a misspelt field is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
