"""`make providers`, against a scripted provider behind the address of OpenAI's variable."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks import providers
from contracts.wire.operation import MODEL_BY_KEY
from services.planner.models.by_provider import local_models
from services.planner.models.providers import PROVIDERS
from tests.support.model_server import ModelServer, Say, Seen, action
from tests.support.needs import free_port

KEY = "sk-secret-of-a-test"
MODEL = MODEL_BY_KEY["OPENAI_API_KEY"]
CALL = {"name": "count_orders", "arguments": '{"customer": "ACME"}'}


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the docs, in an environment without keys and without an Ollama."""
    for name in {*MODEL_BY_KEY, *(key for provider in PROVIDERS.values() for key in provider.keys)}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(providers, "local_models", partial(local_models, port=free_port()))
    copy = tmp_path / "tried.md"
    copy.write_text(providers.DOCS.read_text())
    monkeypatch.setattr(providers, "DOCS", copy)
    return copy


@pytest.fixture
def server(docs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    del docs  # It clears the environment first.
    with ModelServer() as running:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


def row(text: str, model: str = MODEL) -> list[str]:
    """The cells of a model's row, apart from its name."""
    line = next(line for line in text.splitlines() if line.startswith(f"| `{model}`"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def able(seen: Seen) -> Say:
    """A model that can do everything."""
    if "image_url" in seen.text:
        return Say(text="Red.")
    if "tools" in seen.body:
        return Say(tool_calls=[CALL])
    thought = "Let me see." if "reasoning_effort" in seen.body else ""
    return Say(text=action("count_orders", customer="ACME").text, reasoning=thought)


def test_a_model_that_can_do_everything(server: ModelServer, docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its row says so and when it was asked; all other rows stay. Its key is shown nowhere."""
    server.choose = able
    before = docs.read_text()
    providers.main([])
    after, printed = docs.read_text(), capsys.readouterr().out
    *cells, asked_on = row(after)
    assert cells == ["yes"] * 5
    assert asked_on.startswith("20")
    changed = {line for line in after.splitlines() if line not in before.splitlines()}
    assert len(changed) == 1
    assert changed <= set(printed.splitlines())
    assert KEY not in after + printed
    assert {seen.headers["authorization"] for seen in server.ledger} == {f"Bearer {KEY}"}


def test_a_model_that_can_do_little(server: ModelServer, docs: Path) -> None:
    """It refuses `response_format`, functions and images, writes prose, and reports no usage."""
    server.choose = lambda seen: (
        Say(status=400)
        if "response_format" in seen.body or "tools" in seen.body or "image_url" in seen.text
        else Say(text="ACME has two.", usage=None)
    )
    providers.main([])
    assert row(docs.read_text())[:-1] == [
        "no, without `response_format`",
        "failed: model_refused",
        "no",
        "failed: model_refused",
        "no",
    ]


def test_a_model_of_ones_own_is_asked_by_name(server: ModelServer, docs: Path) -> None:
    """It gets a row of its own; a wrong key ends the asking of one model, not of all."""
    server.choose = lambda seen: able(seen) if seen.body["model"] == "mine" else Say(status=401)
    providers.main(["openai/mine"])
    assert row(docs.read_text(), "openai/mine")[0] == "yes"
    assert row(docs.read_text())[:2] == ["failed: model_failed", "–"]


def test_without_keys_nobody_is_asked(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the table stays as it is."""
    before = docs.read_text()
    providers.main([])
    assert docs.read_text() == before
    assert "nobody is asked" in capsys.readouterr().out


def test_every_listed_model_is_in_the_docs() -> None:
    """One that was never asked is named so."""
    docs = providers.DOCS.read_text()
    assert providers.written(docs, []) == docs
    assert all(row(docs, model)[0] for model in providers.LISTED)
    fresh = providers.written(f"{providers.HEAD}\n| --- |\n", [])
    assert fresh.count(providers.NEVER) == len(providers.LISTED)
