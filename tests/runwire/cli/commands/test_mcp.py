"""`runwire mcp`: adding a server to the file; what is listed and checked of those that a gateway knows."""

from pathlib import Path

from services.tool_runner.transports.mcp.config import read_servers_file
from tests.runwire.conftest import runwire


def test_what_add_writes_is_what_the_tool_runner_reads(tmp_path: Path) -> None:
    """A program or an address, each name once."""
    file = tmp_path / "servers.toml"
    program = ["npx", "-y", 'a "b"']
    assert runwire("mcp", "add", "files", "--file", str(file), "--", *program, data=tmp_path).returncode == 0
    assert runwire("mcp", "add", "far", "--file", str(file), "--address", "http://x/mcp", data=tmp_path).returncode == 0
    files, far = read_servers_file(file)
    assert ([files.command, *files.args], far.url) == (program, "http://x/mcp")
    for again in (["files", "--", "npx"], ["new"]):
        assert runwire("mcp", "add", *again[:1], "--file", str(file), *again[1:], data=tmp_path).returncode == 2
    assert len(read_servers_file(file)) == 2
