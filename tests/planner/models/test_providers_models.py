"""The table of prices and abilities, which is made of LiteLLM's."""

from importlib.metadata import distribution
from pathlib import Path

import pytest

from contracts.runs.payload import Usage
from services.planner.models.providers import MODEL_TABLE, cost_usd, known_model
from tests.support.model_table import LICENCE_FILE, LICENCE_SOURCE, licence, rendered


def test_the_table_is_that_of_the_pinned_litellm() -> None:
    """After an upgrade `make models` writes it again."""
    litellm = distribution("litellm")
    assert MODEL_TABLE.read_text() == rendered(Path(str(litellm.locate_file("litellm"))), litellm.version)
    assert LICENCE_FILE.read_text() == licence(litellm.read_text(LICENCE_SOURCE) or "")


def test_the_licence_of_the_table_is_beside_it() -> None:
    """With its copyright notice, as the MIT licence asks of every copy."""
    assert "MIT License\n\nCopyright (c) 2023 Berri AI\n\nPermission is hereby granted" in LICENCE_FILE.read_text()


@pytest.mark.parametrize("model", ["openai/gpt-5.4-mini", "gpt-5.4-mini", "openrouter/openai/gpt-5.4-mini"])
def test_a_model_is_found_by_its_names(model: str) -> None:
    """With its provider, and without where the table has it so."""
    known = known_model(model)
    assert known is not None
    assert known.vision
    assert known.reasoning
    assert known.context_tokens == 272_000


def test_a_reply_costs_what_the_table_says() -> None:
    """Tokens that were read from the cache have a price of their own."""
    usage = Usage(prompt_tokens=1000, cached_tokens=400, completion_tokens=10)
    assert cost_usd("openai/gpt-5.4-mini", usage) == pytest.approx(600 * 7.5e-7 + 400 * 7.5e-8 + 10 * 4.5e-6)


@pytest.mark.parametrize("model", ["openai/scripted", "nonsense", "openai/", "groq/gpt-5.4-mini"])
def test_an_unknown_model_has_no_price(model: str) -> None:
    """And is not taken for another one."""
    assert cost_usd(model, Usage(prompt_tokens=1)) is None
