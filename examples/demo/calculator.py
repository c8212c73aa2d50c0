"""A tool that computes: `calculate {expression: "15% of 80 + 2^10"}`.

Exact where arithmetic is exact: numbers are fractions, so 0.1 + 0.2 is 0.3 and 1/3*3 is 1. Roots that do not come out
even, logarithms and angles are floating point, and the result says so.

The expression comes from a model, so it is hostile until shown otherwise. It is parsed and never executed: only the
nodes, operators, functions and constants named below exist. Length, nesting and the size of every number on the way are
bounded, which bounds the time.
"""

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

from pydantic import BaseModel, Field

from runwire import ToolError, tool

MAX_CHARACTERS = 500
MAX_DEPTH = 60
MAX_BITS = 3_400
"""Of a numerator or denominator, about 1,000 digits. What grows beyond goes on as floating point, if it fits there."""
SHOWN_DIGITS = 15
"""Of a result that is rounded."""

Number = Fraction | float

_CONSTANTS: dict[str, float] = {"pi": math.pi, "e": math.e, "tau": math.tau}
_WORDS = (("×", "*"), ("·", "*"), ("÷", "/"), ("−", "-"), ("^", "**"), ("π", "pi"))
_PERCENT_OF = re.compile(r"(\d+(?:\.\d+)?)\s*%\s*of\b")
_EXPONENT = re.compile(r"[eE][+-]?(\d+)$")
_BEYOND_A_THOUSAND = re.compile(r"\d{4}")
_MAX_EXPONENT = 300


class Refused(Exception):
    """The expression is not computed; the text says why and what to write instead."""


def evaluate(expression: str) -> Number:
    """Compute an expression. A Fraction is exact, a float is not. Raises Refused."""
    if len(expression) > MAX_CHARACTERS:
        raise Refused(f"the expression has {len(expression)} characters, at most {MAX_CHARACTERS} are read")
    text = _PERCENT_OF.sub(r"\1/100*", expression.strip().rstrip("=? "))
    for seen, meant in _WORDS:
        text = text.replace(seen, meant)
    try:
        return _value(_parsed(text), text, 0)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise Refused(f"{expression!r} is not an expression: write it as in (2 + 3) * 4") from error
    except ZeroDivisionError as error:
        raise Refused("division by zero") from error
    except OverflowError as error:
        raise Refused("a number on the way is too large") from error


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        # Of code that looks like a slip, as `1if x`: it would be refused anyway, and a log line is no place for what a
        # model wrote.
        warnings.simplefilter("ignore")
        return ast.parse(text.replace("\0", "?"), mode="eval").body


def _value(node: ast.expr, text: str, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise Refused(f"more than {MAX_DEPTH} levels of nesting")
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            result: Number = _literal(ast.get_source_segment(text, node) or "")
        case ast.Name(id=name) if name in _CONSTANTS:
            result = _CONSTANTS[name]
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            value = _value(operand, text, depth + 1)
            result = -value if isinstance(node.op, ast.USub) else value
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            result = _OPERATORS[type(op)](_value(left, text, depth + 1), _value(right, text, depth + 1))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            result = _call(name, [_value(arg, text, depth + 1) for arg in args])
        case _:
            raise Refused(_complaint(node))
    return _bounded(result)


def _complaint(node: ast.expr) -> str:
    match node:
        case ast.Tuple():
            return "write numbers without thousands separators, with a point before the decimals"
        case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)):
            known = ", ".join([*_FUNCTIONS, *_CONSTANTS])
            return f"{name[:40]!r} is not known here; known are {known}"
    return f"{type(node).__name__} is not arithmetic"


def _literal(text: str) -> Fraction:
    """Read a number exactly as it is written; the parser's own float would have rounded it."""
    exponent = _EXPONENT.search(text)
    if exponent and (_BEYOND_A_THOUSAND.search(exponent[1]) or int(exponent[1]) > _MAX_EXPONENT):
        raise Refused(f"exponents go to {_MAX_EXPONENT}")
    try:
        return Fraction(text)
    except ValueError:
        return Fraction(int(text, 0))  # 0x10, 0b1: integers of another base.


def _bounded(value: Number) -> Number:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Refused("a number on the way is too large")
    elif _bits(value) > MAX_BITS:
        return float(value)
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _power(base: Number, exponent: Number) -> Number:
    if exponent == math.floor(exponent):
        # The size is checked before anything is computed: 9**9**9 must cost nothing.
        power = int(exponent)
        if isinstance(base, Fraction) and (base in {-1, 0, 1} or (_bits(base) - 1) * abs(power) <= MAX_BITS):
            return Fraction(base**power)
    elif base < 0:
        raise Refused("a negative number has no real power of a broken exponent")
    result: float = float(base) ** float(exponent)
    return result


def _root(value: Number) -> Number:
    if value < 0:
        raise Refused("a negative number has no real square root")
    if isinstance(value, Fraction):
        root = Fraction(math.isqrt(value.numerator), math.isqrt(value.denominator))
        if root * root == value:
            return root
    return math.sqrt(value)


def _factorial(value: Number) -> Number:
    if not isinstance(value, Fraction) or value.denominator != 1 or not 0 <= value <= 400:
        raise Refused("factorials are computed of whole numbers from 0 to 400")
    return Fraction(math.factorial(value.numerator))


def _round(value: Number, digits: Number = Fraction(0)) -> Number:
    """Round halves away from zero, as people do."""
    if digits not in range(-30, 31):
        raise Refused("the second argument of round is a whole number from -30 to 30")
    scale = Fraction(10) ** int(digits)
    exact = Fraction(value) * scale
    whole = math.floor(abs(exact) + Fraction(1, 2))
    return Fraction(whole if exact >= 0 else -whole) / scale


def _of_floats(function: Callable[..., float]) -> Callable[..., Number]:
    return lambda *values: function(*map(float, values))


def _of_fractions(function: Callable[..., int]) -> Callable[..., Number]:
    return lambda *values: Fraction(function(*values))


_OPERATORS: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
# name -> the function, and how many arguments it takes: at least, at most.
_FUNCTIONS: dict[str, tuple[Callable[..., Number], int, int]] = {
    "sqrt": (_root, 1, 1),
    "abs": (abs, 1, 1),
    "round": (_round, 1, 2),
    "floor": (_of_fractions(math.floor), 1, 1),
    "ceil": (_of_fractions(math.ceil), 1, 1),
    "factorial": (_factorial, 1, 1),
    "min": (min, 1, MAX_CHARACTERS),
    "max": (max, 1, MAX_CHARACTERS),
    "exp": (_of_floats(math.exp), 1, 1),
    "ln": (_of_floats(math.log), 1, 1),
    "log": (_of_floats(math.log), 1, 2),
    "log10": (_of_floats(math.log10), 1, 1),
    "log2": (_of_floats(math.log2), 1, 1),
    "sin": (_of_floats(math.sin), 1, 1),
    "cos": (_of_floats(math.cos), 1, 1),
    "tan": (_of_floats(math.tan), 1, 1),
    "asin": (_of_floats(math.asin), 1, 1),
    "acos": (_of_floats(math.acos), 1, 1),
    "atan": (_of_floats(math.atan), 1, 1),
    "degrees": (_of_floats(math.degrees), 1, 1),
    "radians": (_of_floats(math.radians), 1, 1),
}


def _call(name: str, values: list[Number]) -> Number:
    function, least, most = _FUNCTIONS[name]
    if not least <= len(values) <= most:
        number = str(least) if least == most else f"{least} to {most}"
        raise Refused(f"{name} takes {number} arguments, not {len(values)}")
    try:
        return function(*values)
    except ValueError as error:
        raise Refused(f"{name} has no real value there") from error


def written(value: Number) -> tuple[str, bool]:
    """Return a number as decimal text, and whether the text is exact (else it is rounded to 15 significant digits)."""
    if isinstance(value, float):
        return f"{value:.{SHOWN_DIGITS}g}", False
    if value.denominator == 1:
        return str(value.numerator), True
    places = _decimal_places(value.denominator)
    if places is not None:
        whole, rest = divmod(abs(value.numerator) * 10**places // value.denominator, 10**places)
        return f"{'-' if value < 0 else ''}{whole}.{rest:0{places}d}", True
    rounded = Context(prec=SHOWN_DIGITS).divide(Decimal(value.numerator), Decimal(value.denominator))
    return f"{rounded:g}", False


def _decimal_places(denominator: int) -> int | None:
    """How many decimals write a fraction exactly; None if no number does, or more than 30."""
    return next((places for places in range(1, 31) if 10**places % denominator == 0), None)


class Expression(BaseModel):
    """What to compute."""

    expression: str = Field(
        min_length=1,
        max_length=MAX_CHARACTERS,
        description="arithmetic, as in (2 + 3.5) * 4, 2^10, 15% of 80, sqrt(2), sin(pi/6); angles in radians; "
        "no thousands separators",
    )


class Calculation(BaseModel):
    """What came out."""

    expression: str
    result: str = Field(description="decimal text, so that no digit is lost")
    exact: bool = Field(description="false: rounded to 15 significant digits")
    answer: str


def calculation(expression: str) -> Calculation:
    """Compute an expression and say it in words. Raises Refused."""
    result, exact = written(evaluate(expression))
    shown = expression.strip().rstrip("=? ")
    return Calculation(expression=shown, result=result, exact=exact, answer=f"{shown} {'=' if exact else '≈'} {result}")


@tool(
    desc="Compute an arithmetic expression exactly: + - * / // % ^, percentages, roots, logarithms, trigonometry",
    tags=["math"],
    idempotent=True,
    timeout_s=5,
)
async def calculate(args: Expression) -> Calculation:
    """Answer with the value of the expression."""
    try:
        return calculation(args.expression)
    except Refused as refusal:
        raise ToolError(str(refusal)) from refusal
