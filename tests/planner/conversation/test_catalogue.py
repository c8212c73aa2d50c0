"""The catalogue of tools, as a model reads it."""

from contracts.tools.messages import ToolSpec
from services.planner.conversation.catalogue import digest_of, render_catalogue


def test_a_changed_tool_is_rendered_anew() -> None:
    """Although a digest is made once for each object: a changed tool is another one."""
    tool = ToolSpec(name="echo", description="Say it again.")
    before, digest = render_catalogue([tool]), digest_of(tool)
    changed = tool.model_copy(update={"description": "Say it twice."})
    assert "Say it twice." in render_catalogue([changed])
    assert (digest_of(tool), digest_of(changed)) == (digest, changed.digest())
    assert render_catalogue([tool]) == before
