"""A page of docs whose commands are carried out in one shell, section by section."""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.compose.deployment import CommandFailed, Deployment

_SECTION = re.compile(r"^## ([^\n]*)$|^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LIMIT_S = 900


@dataclass
class Block:
    """Commands, and the lines that the page says they print; `…` in a line is any text."""

    section: str
    commands: str
    printed: list[str] = field(default_factory=list)


def blocks(page: Path) -> Iterator[Block]:
    """Return the blocks `sh` of a page in order, each with the block `text` that follows."""
    found: list[Block] = []
    section = ""
    for title, language, text in _SECTION.findall(page.read_text(encoding="utf-8")):
        if title:
            section = title
        elif language == "sh":
            found.append(Block(section, text))
        else:
            found[-1].printed += text.splitlines()
    return iter(found)


class Shell:
    """One bash in the folder of a deployment. What it started in the background is ended with it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._log = deployment.folder / "shell.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-euo", "pipefail"],
                cwd=deployment.folder,
                env=deployment.environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def carry_out(self, block: Block) -> None:
        """Run the commands of a block. Raises CommandFailed when one fails, or does not print what the page says."""
        begins, mark = self._log.stat().st_size, f"@@@{time.monotonic_ns()}"
        # Else docker reads the commands that follow as its input.
        self._write(f"{{\n{self._with_own_ports(block.commands)}}} < /dev/null\necho {mark}")
        ends_at = time.monotonic() + _LIMIT_S
        while mark not in (printed := self._log.read_bytes()[begins:].decode(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > ends_at:
                raise CommandFailed(f"{block.commands}\n{printed[-3000:]}\n{self._deployment.state()}")
            time.sleep(0.1)
        for line in block.printed:
            if not re.search(".*".join(map(re.escape, line.split("…"))), printed):
                raise CommandFailed(f"{block.commands} did not print {line!r}:\n{printed[-3000:]}")

    def close(self) -> None:
        # The whole group: a command that still runs, such as `up --wait`, would hide the error by one of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)

    def _write(self, commands: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{commands}\n")
        self._process.stdin.flush()

    def _with_own_ports(self, commands: str) -> str:
        """The page names the default ports; several deployments may be on one machine. Inside it is 4222 for all."""
        text = commands.replace("127.0.0.1:8080", f"127.0.0.1:{self._deployment.port}")
        return re.sub(r"(?<!nats):4222", f":{self._deployment.nats_port}", text)
