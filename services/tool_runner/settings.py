"""Settings of the tool runner: environment variables `RUNWIRE_*`."""

from pathlib import Path

from pydantic import Field

from services.shared.images.cleaner import ImageSettings


class ToolRunnerSettings(ImageSettings):
    """What a deployment sets for all tools."""

    tools_file: Path | None = Field(
        default=None, description="JSON or TOML: specifications of tools that do not announce themselves"
    )
    mcp_servers_file: Path | None = Field(
        default=None, description="TOML or JSON: MCP servers whose tools are offered (docs/mcp.md)"
    )
    trust_tools: bool = Field(
        default=False, description="offer every specification that a tool announces, as if each had been accepted"
    )
    discover_s: float = Field(default=2.0, gt=0, description="between two requests for announcements")
    gone_tool_s: float = Field(
        default=300.0, gt=0, description="after which the consumer of a tool that is gone is removed"
    )
    unavailable_s: float = Field(
        default=5.0, ge=0, description="how long a tool may have no subscriber before its calls fail"
    )
    settling_s: float = Field(
        default=2.0, ge=0, description="how long after a (re)connect of the tool runner the silence of tools is ignored"
    )
    max_result_bytes: int = Field(
        default=72 << 20, ge=1024, description="of a result as the tool sends it: 50 MB of bytes are 67 MB of base64"
    )
    observation_max_bytes: int = Field(
        default=32 << 10, ge=1 << 10, le=96 << 10, description="the model sees both ends of a larger observation"
    )
    observation_shown_characters: int = Field(
        default=1_000, ge=1, le=10_000, description="of each end of a larger observation"
    )
    read_artifact_max_bytes: int = Field(
        default=16 << 10, ge=16, le=96 << 10, description="that one call of `read_artifact` returns"
    )
    artifact_patience_s: float = Field(
        default=60, gt=0, description="how long a call waits for an unavailable artifact store"
    )
