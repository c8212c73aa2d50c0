"""Settings of the tool runner: environment variables `RUNWIRE_*`."""

from pathlib import Path

from pydantic import Field

from services.images.settings import ImageSettings


class ToolRunnerSettings(ImageSettings):
    """What a deployment sets for all tools."""

    tools_file: Path | None = Field(
        default=None, description="JSON or TOML: specifications of tools that do not announce themselves"
    )
    tool_slots: int = Field(default=256, ge=1, description="calls of one tool that this process holds at once")
    discover_s: float = Field(default=2.0, gt=0, description="between two questions who is there")
    gone_tool_s: float = Field(
        default=300.0, gt=0, description="after which the consumer of a tool that is gone is removed"
    )
    max_call_s: float = Field(default=3600, gt=0, description="longest call, whatever the run's deadline is")
    unavailable_s: float = Field(default=5.0, ge=0, description="how long nobody may listen before the model is told")
    settling_s: float = Field(
        default=2.0, ge=0, description="after a (re)connect of our own silence proves nothing for so long"
    )
    max_attempts: int = Field(default=3, ge=1, description="of an idempotent call whose tool died in its middle")
    max_result_bytes: int = Field(
        default=72 << 20, ge=1024, description="as it comes: 50 MB of bytes are 67 MB of base64"
    )
    observation_max_bytes: int = Field(
        default=32 << 10, ge=1 << 10, le=96 << 10, description="the model sees both ends of what is larger"
    )
    observation_shown_characters: int = Field(default=1_000, ge=1, le=10_000, description="of each end of a larger one")
    read_artifact_max_bytes: int = Field(
        default=16 << 10, ge=16, le=96 << 10, description="that one `read_artifact` gives the model"
    )
    artifact_patience_s: float = Field(
        default=60, gt=0, description="how long a call waits for an artifact store that is away"
    )
