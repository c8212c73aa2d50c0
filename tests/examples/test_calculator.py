"""The calculator: exact where arithmetic is exact, bounded whatever it is given."""

import math
import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.tools.messages import ToolSpec
from examples.demo.calculator import MAX_CHARACTERS, Refused, calculate, calculation, evaluate, written
from runwire import ToolError
from runwire.testing import RecordingContext

numbers = st.one_of(
    st.integers(0, 10**12).map(str),
    st.decimals(0, 10**6, places=6, allow_nan=False).map(lambda value: f"{value:f}"),
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[str, Fraction | None]:
    """An expression of the four rules, and its value by another way: None where it divides by zero."""
    if depth == 0 or draw(st.booleans()):
        text = draw(numbers)
        return text, Fraction(text)
    left, a = draw(expressions(depth=depth - 1))
    right, b = draw(expressions(depth=depth - 1))
    sign = draw(st.sampled_from(["+", "-", "*", "/", "//", "%"]))
    text = f"({left} {sign} {right})"
    if a is None or b is None or (b == 0 and sign in {"/", "//", "%"}):
        return text, None
    whole = math.floor(a / b) if b else 0
    values = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a, "//": Fraction(whole), "%": a - b * whole}
    return text, values[sign]


@given(expressions())
def test_the_four_rules_are_exact(case: tuple[str, Fraction | None]) -> None:
    """Against fractions, computed beside the parser."""
    text, value = case
    if len(text) > MAX_CHARACTERS:
        return
    if value is None:
        with pytest.raises(Refused, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == value


@given(st.fractions(-(10**9), 10**9, max_denominator=10**6))
def test_a_number_is_written_as_it_is(value: Fraction) -> None:
    """Text that claims to be exact is; other text is right to 15 digits."""
    text, exact = written(value)
    if exact:
        assert Fraction(text) == value
    else:
        assert float(text) == pytest.approx(float(value), rel=1e-14)


@given(st.integers(-50, 50), st.integers(-40, 40))
def test_whole_powers_are_exact(base: int, exponent: int) -> None:
    """Negative exponents too."""
    if base == 0 and exponent < 0:
        with pytest.raises(Refused, match="division by zero"):
            evaluate(f"({base})^({exponent})")
    else:
        assert evaluate(f"({base})^({exponent})") == Fraction(base) ** exponent


@given(st.text(alphabet="0123456789.()+-*/%^ e,_xsqrtπ=", max_size=60))
def test_any_text_is_computed_or_refused(text: str) -> None:
    """There is no third outcome."""
    try:
        said = calculation(text).answer
    except Refused as refusal:
        said = str(refusal)
    assert said


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("0.1 + 0.2", "0.1 + 0.2 = 0.3"),
        ("1/3", "1/3 ≈ 0.333333333333333"),
        ("15% of 80", "15% of 80 = 12"),
        ("3 × 4 ÷ 8 − 1 =", "3 × 4 ÷ 8 − 1 = 0.5"),
        ("sqrt(2)", "sqrt(2) ≈ 1.4142135623731"),
        ("round(2.675, 2)", "round(2.675, 2) = 2.68"),
        ("-7 // 2", "-7 // 2 = -4"),
        ("1000 * 1.004^360", "1000 * 1.004^360 ≈ 4208.58992551208"),
        ("0x1f + 1_000", "0x1f + 1_000 = 1031"),
        ("max(1, 5/2, 2)", "max(1, 5/2, 2) = 2.5"),
        ("10**30 + 1", "10**30 + 1 = 1000000000000000000000000000001"),
        ("1/10**400", "1/10**400 ≈ 1e-400"),
    ],
)
def test_what_people_write(expression: str, answer: str) -> None:
    """Percentages, other signs for the same thing, long numbers."""
    assert calculation(expression).answer == answer


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "().__class__.__mro__[1].__subclasses__()",
        "(lambda: 1)()",
        "'a' * 100",
        "1if 2else 3",
        "x := 1",
        "True",
        "sqrt(*[4])",
        "log(8, base=2)",
        "1 < 2",
        "import os",
        "\x00",
        "",
        "int('1')",
    ],
)
def test_what_is_not_arithmetic_is_refused(expression: str) -> None:
    """Nothing is executed: only what is named exists."""
    with pytest.raises(Refused):
        evaluate(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9**9**9**9",
        "2**(10**300)",
        "(2**3000)**3000",
        "factorial(factorial(20))",
        "1e300**1e300",
        "1e999999999",
        "(" * 240 + "1" + ")" * 240,
        "-" * 480 + "1",
        "2**-" * 100 + "1",
        "1" * (MAX_CHARACTERS + 1),
        "exp(" * 20 + "9" + ")" * 20,
        "*".join(["factorial(400)"] * 30),
    ],
)
def test_what_would_take_for_ever_is_refused_at_once(expression: str) -> None:
    """Sizes are checked before anything is computed."""
    began = time.process_time()
    with pytest.raises(Refused):
        evaluate(expression)
    assert time.process_time() - began < 0.5


def test_tiny_powers_cost_nothing_either() -> None:
    """What is too fine for a fraction goes on as floating point."""
    began = time.process_time()
    assert evaluate("(1 + 1e-9)^(10^9)") == pytest.approx(math.e, rel=1e-6)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("1,234 * 2", "without thousands separators"),
        ("foo(1)", "'foo' is not known here; known are sqrt"),
        ("sqrt(-1)", "no real square root"),
        ("(-8)^(1/3)", "no real power"),
        ("log(0)", "log has no real value there"),
        ("sqrt()", "sqrt takes 1 arguments, not 0"),
        ("factorial(2.5)", "whole numbers from 0 to 400"),
        ("1/0", "division by zero"),
    ],
)
async def test_a_refusal_says_what_to_write_instead(expression: str, reason: str) -> None:
    """The model reads it."""
    with pytest.raises(ToolError) as refusal:
        await calculate.run({"expression": expression}, RecordingContext())
    assert reason in refusal.value.reason


def test_the_specification() -> None:
    """What the catalogue shows."""
    spec: ToolSpec = calculate.spec
    assert spec.name == "calculate"
    assert spec.idempotent
    assert spec.input_schema["properties"]["expression"]["maxLength"] == MAX_CHARACTERS
