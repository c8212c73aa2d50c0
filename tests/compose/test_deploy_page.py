"""docs/deploy.md is carried out: each block `sh`, in order, in one shell; `text` after one is what it prints."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compose.deployment import Deployment, needs_compose
from tests.support.checkout import ROOT

_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LIMIT_S = 600

pytestmark = [pytest.mark.compose, pytest.mark.timeout(_LIMIT_S + 300)]


def blocks() -> list[tuple[str, list[str]]]:
    """The commands of the page, each with the lines that they print, where it says."""
    found: list[tuple[str, list[str]]] = []
    for language, text in _BLOCK.findall((ROOT / "docs/deploy.md").read_text(encoding="utf-8")):
        if language == "sh":
            found.append((text, []))
        else:
            found[-1][1].extend(text.splitlines())
    return found


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """A copy of the checkout with built images. It is removed afterwards, with its volumes."""
    needs_compose()
    for program in ("go", "npm", "nats"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not here")
    made = Deployment(tmp_path / "clone", "runwire-deploy-page")
    made.copy_checkout()
    made.build()
    yield made
    made.down()


def test_the_page_can_be_carried_out(deployment: Deployment) -> None:
    """Every command succeeds and prints what the page says."""
    # Processes of the page that still run are ended with its shell, whatever happens.
    script = ["set -euo pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for number, (commands, _) in enumerate(blocks()):
        script += [f"echo '@@@ {number}'", commands]
    text = "\n".join(script).replace("127.0.0.1:8080", f"127.0.0.1:{deployment.port}")
    text = text.replace(":4222", f":{deployment.nats_port}").replace(f"nats:{deployment.nats_port}", "nats:4222")
    (deployment.folder / "page.sh").write_text(text, encoding="utf-8")
    printed = re.split(r"@@@ \d+\n", deployment.run("bash", "page.sh", timeout=_LIMIT_S))[1:]
    missing = [
        (number, line)
        for number, (_, expected) in enumerate(blocks())
        for line in expected
        if not re.search(".*".join(map(re.escape, line.split("…"))), printed[number])
    ]
    assert not missing, [printed[number][-2000:] for number, _ in missing]
