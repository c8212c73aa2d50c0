"""Thousands of requests that the OpenAPI document allows or nearly allows: no 5xx, and no answer that it leaves out."""

import re
import subprocess
from pathlib import Path

import pytest

from runwire.local.data_folder import remembered
from services.gateway.auth.key_lines import new_key
from tests.support import samples
from tests.support.needs import needs_program
from tests.support.up import ROOT, running_up

KEY, LINE = new_key("default")
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
SEEDS, EXAMPLES, CASES = 4, 55, 10_000 // 4
"""With a key and without one 10,000 requests each: with each seed so many of each operation, and in all at least."""


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", samples.seeds(SEEDS))
@pytest.mark.parametrize("key", [KEY, ""], ids=["key", "keyless"])
def test_answers_are_as_described(key: str, seed: int, tmp_path: Path) -> None:
    """Needs the program schemathesis, which is no part of the lock. TEST_SEED repeats what it has found."""
    program = needs_program("schemathesis")
    with running_up(tmp_path, **({"RUNWIRE_API_KEYS": LINE} if key else {})):
        url = remembered(tmp_path)["url"]
        command = [
            *(str(program), "--config-file", str(ROOT / "tests" / "gateway" / "schemathesis.toml")),
            *("run", f"{url}/openapi.json", "--checks", ",".join(CHECKS), "--phases", "fuzzing", "--no-color"),
            *("-n", str(EXAMPLES), "--seed", str(seed), "--continue-on-failure"),
            *(("-H", f"Authorization: Bearer {key}") if key else ()),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert ran.returncode == 0, "\n".join(line[:500] for line in ran.stdout.splitlines())
        (cases,) = re.findall(r"(\d+) generated", ran.stdout)
        assert int(cases) >= CASES
