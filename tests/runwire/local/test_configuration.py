"""Settings from the environment, `.env` and `runwire.toml`: which counts, and what is shown of it."""

from pathlib import Path

import pytest

from runwire.local import configuration
from runwire.local.supervisor import CannotLaunch
from tests.runwire.conftest import document, runwire

TOML = """
model = "openai/large"
models = ["openai/large", "groq/small"]
log_level = "debug"
max_images = 3
trust_tools = false

[model_servers."openai/large"]
api_base = "http://gpu1:8000/v1"
"""


def test_the_environment_counts_before_dotenv_and_that_before_toml(tmp_path: Path) -> None:
    """Lists and tables arrive in the form that the services read."""
    (tmp_path / "runwire.toml").write_text(TOML)
    (tmp_path / ".env").write_text("# of me\nOPENAI_API_KEY='a b'\nRUNWIRE_LOG_LEVEL=info\nRUNWIRE_MAX_IMAGES=4\n")
    environment = {"RUNWIRE_MAX_IMAGES": "5", "HOME": "/"}
    configuration.apply(environment, tmp_path)
    assert environment == {
        "HOME": "/",
        "OPENAI_API_KEY": "a b",
        "RUNWIRE_LOG_LEVEL": "info",
        "RUNWIRE_MAX_IMAGES": "5",
        "RUNWIRE_MODEL": "openai/large",
        "RUNWIRE_MODELS": "openai/large,groq/small",
        "RUNWIRE_MODEL_SERVERS": '{"openai/large": {"api_base": "http://gpu1:8000/v1"}}',
        "RUNWIRE_TRUST_TOOLS": "false",
    }


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("runwire.toml", "model = ", "cannot be read"),
        ("runwire.toml", "RUNWIRE_MODEL = 1", "RUNWIRE_MODEL is no setting; write them in lower case"),
        ("runwire.toml", "port = 2026-01-01", "port is a date"),
        ("runwire.toml", 'data_dir = "x"', "runwire.toml: RUNWIRE_DATA_DIR belongs into the environment"),
        (".env", "RUNWIRE_URL=http://elsewhere", ".env: RUNWIRE_URL belongs into the environment"),
        (".env", b"\xff=1", "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(file: str, text: str | bytes, said: str, tmp_path: Path) -> None:
    """A setting that other commands need too would be read by `up` alone."""
    (tmp_path / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CannotLaunch, match=said):
        configuration.apply({}, tmp_path)
    ended = runwire("up", data=tmp_path)
    assert (ended.returncode, said in ended.said) == (1, True)


def test_config_show_says_where_each_value_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And shows no secret."""
    monkeypatch.setenv("RUNWIRE_NATS_URL", "nats://me:canary@host")
    (tmp_path / ".env").write_text("GROQ_API_KEY=canary\nRUNWIRE_MODEL_API_KEY=canary")
    (tmp_path / "runwire.toml").write_text('model = "groq/x"\nmax_context_tokens = 5000')
    found = {each["name"]: (each["value"], each["source"]) for each in document("config", "show", data=tmp_path)}
    assert found["RUNWIRE_NATS_URL"] == ("nats://•••@host", "environment")
    assert found["GROQ_API_KEY"] == found["RUNWIRE_MODEL_API_KEY"] == ("•••", ".env")
    assert found["RUNWIRE_MODEL"] == ("groq/x", "runwire.toml")
    assert found["RUNWIRE_MAX_CONTEXT_TOKENS"] == ("5000", "runwire.toml")
    assert "canary" not in runwire("config", "show", data=tmp_path).stdout
