"""The grammar of templates, string by string; tests/conformance has the usual ones."""

import pytest

from runwire.plans import Template, is_candidate, parse_template
from runwire.plans.templates import holds_embedded


@pytest.mark.parametrize(
    ("text", "index", "path"),
    [
        ("$12.output.a.b.0.c", 12, "a/b/0/c"),
        ("$0.output.output.output", 0, "output/output"),
        ("$0.output.$1", 0, "$1"),
        ("$0.output.größe", 0, "größe"),
        ("$" + "9" * 100 + ".output.x", 10**100 - 1, "x"),
        ("$" + "9" * 101 + ".output.x", 10**100, "x"),
    ],
)
def test_templates(text: str, index: int, path: str) -> None:
    """The number of a call, of any length, and the segments of the path."""
    assert parse_template(text) == Template(index, tuple(path.split("/")))
    assert is_candidate(text)


@pytest.mark.parametrize(
    "text",
    [
        "$1.0.output.a",
        "$0.output.",
        "$0.output..a",
        "$0.output.a b",
        "$0.output.a\u00a0",
        "$0.output.a $1.output.b",
        "$0.output",
        "$0.Output.x",
        "$0.output[0].a",
    ],
)
def test_what_is_meant_as_a_template_and_is_none(text: str) -> None:
    """An error, not a text."""
    assert parse_template(text) is None
    assert is_candidate(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "$",
        "$5.00 per month",
        "$0.result is here",
        "$٣.result",
        " $0.output.a",
        "See $0.output.a",
        "$0.result\n",
        "\uff04" + "0.output.a",
    ],
)
def test_text(text: str) -> None:
    """Anything else is left as it is."""
    assert parse_template(text) is None
    assert not is_candidate(text)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("Use $0.output.title as headline", True),
        ("a$10.output.b", True),
        ("a $0.output. b", False),
        ("a $٣.output.b", False),
        ("costs $5.00", False),
    ],
)
def test_templates_inside_longer_strings(text: str, holds: bool) -> None:  # noqa: FBT001, a row of the table
    """They are found, for a warning."""
    assert holds_embedded(text) is holds
