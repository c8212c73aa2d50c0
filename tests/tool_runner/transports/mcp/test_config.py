"""The file of MCP servers: what is read from it, and the sentence that says what is wrong with it."""

from pathlib import Path

import pytest

from services.shared.tools.builtin import model_name
from services.tool_runner.transports.mcp.config import InvalidServersFile, read_servers_file, resolved
from services.tool_runner.transports.mcp.results import spec_of

TOML = """
[servers.files]
command = "npx"
read_only = ["read_*"]
idempotent = ["put"]

[servers.search]
url = "https://search.example.com/mcp"
prefix = ""
approval = "always"
trust_hints = true
"""
OAUTH = """[servers.a]
url = "http://x/"
[servers.a.oauth]
client_id = "x"
client_secret = "{}"
{}"""


def test_both_forms_say_the_same(tmp_path: Path) -> None:
    """TOML, and the JSON of desktop clients."""
    toml, json = tmp_path / "servers.toml", tmp_path / "servers.json"
    toml.write_text(TOML)
    json.write_text('{"mcpServers": {"files": {"type": "stdio", "command": "npx"}}}')
    files, search = read_servers_file(toml)
    assert (files.name, files.prefix, search.prefix) == ("files", "files_", "")
    (plain,) = read_servers_file(json)
    assert plain == files.model_copy(update={"read_only": [], "idempotent": []})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[servers.a]\n", "line 1: server a: either `command` or `url` is needed"),
        ("\n[servers.a]\ncommand = 'x'\nurl = 'http://x/'\n", "line 2: server a: either"),
        ("[servers.a]\nurl = 'file:///x'\n", "is no http:// or https:// address"),
        ("[servers.a]\nurl = 'https://me:secret@x/'\n", "without a login"),
        ("[servers.a]\ncommand = 'x'\nenv = {T = '${NOT_THERE_29}'}\n", "the variable NOT_THERE_29 is not set"),
        ("[servers.a]\ncommand = 'x'\nenv = {T = '${file:/not/there}'}\n", "/not/there cannot be read"),
        ("[servers.a]\ncommand = 'x'\napproval = 'perhaps'\n", "approval"),
        ("[servers.a]\ncommand = 'x'\ncomand = 'x'\n", "comand"),
        (OAUTH.format("x", ""), "line 1: server a: oauth: either `token_url` or `issuer`"),
        (OAUTH.format("x", "issuer = 'http://x'\n").replace("url = ", "command = "), "server a: `oauth` needs a `url`"),
        (
            OAUTH.format("${NOT_THERE_29}", "issuer = 'http://x'\n"),
            "line 1: server a: the variable NOT_THERE_29 is not",
        ),
        ("[servers.'A b']\ncommand = 'x'\n", "its name has not the form"),
        ("[servers.a\n", "line 1"),
        ("x = 1\n", "expected servers under [servers.NAME]"),
    ],
)
def test_what_is_wrong_is_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    """With the server and its line."""
    file = tmp_path / "servers.toml"
    file.write_text(text)
    with pytest.raises(InvalidServersFile) as raised:
        read_servers_file(file)
    assert reason in str(raised.value)
    assert "secret" not in str(raised.value)


def test_references_are_values_of_the_environment_and_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside of a text."""
    (tmp_path / "secret").write_text("s3cret\n")
    monkeypatch.setenv("MCP_TEST_NAME", "name")
    assert resolved(f"Bearer ${{file:{tmp_path}/secret}} ${{MCP_TEST_NAME}} $X") == "Bearer s3cret name $X"


def test_names_are_what_models_take() -> None:
    """The same each time, and never one for two tools."""
    long = "x" * 70
    names = ["look", "a.b", "a/b", "получить", f"{long}_read", f"{long}_write", "read_artifact"]
    shown = [model_name(f"t_{name}") for name in names]
    assert len(set(shown)) == len(names)
    assert (shown[0], shown[1]) == ("t_look", model_name("t_a.b"))
    assert all(
        len(name) <= 64 and name.isascii() and name.replace("_", "").replace("-", "").isalnum() for name in shown
    )


@pytest.mark.parametrize(
    ("server", "tool", "expected"),
    [
        (0, {"name": "read_x"}, (True, "read", False)),
        (0, {"name": "put"}, (True, "external", True)),
        (0, {"name": "x", "annotations": {"readOnlyHint": True}}, (False, "external", True)),
        (1, {"name": "x", "annotations": {"readOnlyHint": True}}, (True, "read", True)),
        (1, {"name": "x", "annotations": {"idempotentHint": "yes"}}, (False, "external", True)),
    ],
)
def test_only_the_operator_says_what_is_safe(tmp_path: Path, server: int, tool: object, expected: object) -> None:
    """By patterns, or by trusting the server's hints; without a word a tool may destroy, and asks."""
    file = tmp_path / "servers.toml"
    file.write_text(TOML)
    assert isinstance(tool, dict)
    spec = spec_of(read_servers_file(file)[server], tool)
    assert (spec.idempotent, spec.side_effects, spec.requires_approval) == expected
