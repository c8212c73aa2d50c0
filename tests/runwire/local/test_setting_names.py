"""Misspelt settings are noticed."""

import re
from pathlib import Path

from runwire.local.configuration import OF_COMMANDS, OF_COMPOSE, OF_SERVICES, misspelt
from services.artifact_store.settings import ArtifactStoreSettings
from services.gateway.settings import GatewaySettings
from services.planner.settings import PlannerSettings
from services.tool_runner.settings import ToolRunnerSettings

ROOT = Path(__file__).parents[3]


def test_all_settings_are_known() -> None:
    """No setting that a service reads is called misspelt, and one that no service reads is."""
    settings = (ArtifactStoreSettings, GatewaySettings, PlannerSettings, ToolRunnerSettings)
    assert {name for kind in settings for name in kind.model_fields} == OF_SERVICES


def test_the_documents_name_no_setting_that_is_not_there() -> None:
    """What a reader copies from them works."""
    named = {
        name
        for file in (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
        for name in re.findall(r"RUNWIRE_[A-Z0-9_]+", file.read_text())
    }
    named -= {name for name in named if name.endswith("_") or name.startswith("RUNWIRE_TEST_")}
    assert {name.removeprefix("RUNWIRE_").lower() for name in named} <= OF_SERVICES | OF_COMMANDS | OF_COMPOSE


def test_tests_and_benchmarks_set_what_is_read() -> None:
    """One that sets a variable which nothing reads tests something else than it says."""
    files = [file for folder in ("tests", "benchmarks") for file in (ROOT / folder).rglob("*.py")]
    texts = {file: file.read_text(encoding="utf-8") for file in files if file != Path(__file__)}
    named = {name for text in texts.values() for name in re.findall(r'"RUNWIRE_([A-Z0-9_]+)"', text)}
    known = OF_SERVICES | OF_COMMANDS | OF_COMPOSE | {"modle"}  # What a test of `runwire doctor` misspells.
    assert {name.lower() for name in named if not name.startswith("TEST_")} <= known


def test_the_variables_of_compose_are_known() -> None:
    """What is set for it in the shell is not called misspelt, and nothing else is known."""
    read = set(re.findall(r"\$\{RUNWIRE_([A-Z0-9_]+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8")))
    assert {name.lower() for name in read} - OF_SERVICES - OF_COMMANDS == OF_COMPOSE


def test_a_misspelt_setting_is_reported_with_the_closest_name() -> None:
    """Its value is not shown."""
    given = {
        "RUNWIRE_MODLE": "s3cr3t",
        "RUNWIRE_PORT": "1",
        "RUNWIRE_TEST_MINIO": "x",
        "RUNWIRE_FROBNICATE": "1",
        "PATH": "/bin",
    }
    assert misspelt(given) == [
        "RUNWIRE_FROBNICATE is not a setting: nothing reads it",
        "RUNWIRE_MODLE is not a setting: nothing reads it; did you mean RUNWIRE_MODEL?",
    ]
