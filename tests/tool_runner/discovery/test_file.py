"""The tools file: what it may hold, and what is wrong with another one."""

from pathlib import Path

import pytest

from services.tool_runner.discovery.file import InvalidToolsFile, read_tools_file


def test_tools_that_do_not_announce_themselves_stand_in_a_file(tmp_path: Path) -> None:
    """As JSON or as TOML."""
    json_file, toml_file = tmp_path / "tools.json", tmp_path / "tools.toml"
    json_file.write_text('[{"name": "echo", "idempotent": true}]')
    toml_file.write_text('[[tools]]\nname = "echo"\nidempotent = true\n[tools.input_schema]\ntype = "object"\n')

    (first,), (second,) = read_tools_file(json_file), read_tools_file(toml_file)

    assert first == second
    assert first.spec.idempotent


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "tools.json"),
        ('{"a": 1}', "list"),
        ('[{"name": "a"}, {}]', "tool 2: name"),
        ('[{"name": "a", "tags": ["mcp:files"]}]', "for tools of MCP servers"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, reason: str) -> None:
    """With the file's name and the place."""
    file = tmp_path / "tools.json"
    file.write_text(text)
    with pytest.raises(InvalidToolsFile, match=reason):
        read_tools_file(file)
    with pytest.raises(InvalidToolsFile, match=r"missing\.json: cannot be read"):
        read_tools_file(tmp_path / "missing.json")
