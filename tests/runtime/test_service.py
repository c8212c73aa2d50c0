"""How a service starts: with wrong settings, and where NATS is not there yet."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.wire.operation import EXIT_WRONG_SETTINGS
from services.artifact_store.settings import ArtifactStoreSettings
from services.gateway.settings import GatewaySettings
from services.planner.settings import PlannerSettings
from services.runtime.settings import BusSettings, read_settings
from tests.support.needs import free_port
from tests.support.waiting import wait_until_blocking

ROOT = Path(__file__).parents[2]
LOGIN = ("RUNWIRE_NATS_USER", "RUNWIRE_NATS_PASSWORD")
"""Half of it would be none at all for NATS."""


@pytest.mark.parametrize(
    ("kind", "name", "value", "said"),
    [
        (PlannerSettings, "RUNWIRE_LOG_LEVEL", "loud", "RUNWIRE_LOG_LEVEL: Input should be 'debug'"),
        (
            PlannerSettings,
            "RUNWIRE_MODEL_VISION",
            "gpt-secret",
            """RUNWIRE_MODEL_VISION: is not the JSON that is needed here, such as {"name": …}""",
        ),
        (
            PlannerSettings,
            "RUNWIRE_FALLBACK_MODELS",
            '["gpt secret"]',
            "RUNWIRE_FALLBACK_MODELS[0]: String should match pattern",
        ),
        (
            PlannerSettings,
            "RUNWIRE_MODEL_VISION",
            '{"x": "secret"}',
            "RUNWIRE_MODEL_VISION['x']: Input should be a valid boolean",
        ),
        (PlannerSettings, "RUNWIRE_MODEL_API_KEY", '"secret"', "RUNWIRE_MODEL_API_KEY: the value is in quotes"),
        (PlannerSettings, "RUNWIRE_MODELS", " 'secret' ", "RUNWIRE_MODELS: the value is in quotes"),
        *(
            (BusSettings, name, "secret", "RUNWIRE_NATS_USER and RUNWIRE_NATS_PASSWORD are set together")
            for name in LOGIN
        ),
        (GatewaySettings, "RUNWIRE_PORT", "secret", "RUNWIRE_PORT: Input should be a valid integer"),
        (ArtifactStoreSettings, "RUNWIRE_S3_ACCESS_KEY", "secret", "RUNWIRE_S3_SECRET_KEY"),
    ],
)
def test_a_wrong_setting_is_named(
    kind: type[BusSettings],
    name: str,
    value: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The variable stands in the sentence; what it holds does not."""
    monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        read_settings(kind)
    assert ended.value.code == EXIT_WRONG_SETTINGS
    sentence = capsys.readouterr().err
    assert sentence.startswith("wrong settings: ")
    assert said in sentence
    assert "secret" not in sentence


@pytest.mark.parametrize(
    ("service", "variable", "text", "said"),
    [
        (
            "planner",
            "RUNWIRE_AGENTS_FILE",
            '[analyst]\nsystem_promt = "x"\n',
            "analyst.system_promt: there is no such field",
        ),
        ("tool_runner", "RUNWIRE_TOOLS_FILE", "[[tools]]\nname = 'a b'\n", "tool 1: 'a b' is not a tool name"),
    ],
)
def test_a_wrong_file_ends_a_service_before_it_looks_for_nats(
    service: str, variable: str, text: str, said: str, tmp_path: Path
) -> None:
    """In one line, which names the entry and the field."""
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    env = {**os.environ, "PYTHONPATH": str(ROOT), variable: str(file)}
    command = [sys.executable, "-P", "-m", f"services.{service}"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == EXIT_WRONG_SETTINGS
    assert len(ended.stderr.strip().splitlines()) == 1
    assert str(file) in ended.stderr
    assert said in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_waits_for_nats_says_so_and_can_be_stopped(number: signal.Signals, tmp_path: Path) -> None:
    """It names the servers without their passwords; told to stop, it stops at once."""
    log = tmp_path / "log"
    url = f"nats://user:secret@127.0.0.1:{free_port()}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RUNWIRE_NATS_URL": url}
    with log.open("wb") as target:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "services.tool_runner"], env=env, stdout=target, stderr=target
        )
    try:
        wait_until_blocking(lambda: "nats_awaited" in log.read_text(), timeout=30, what="it says that it waits")
        process.send_signal(number)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert url.rpartition("@")[2] in said
    assert "secret" not in said
    assert "Traceback" not in said
