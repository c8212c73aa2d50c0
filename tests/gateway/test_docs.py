"""docs/http.md says what the gateway does: its routes, its codes, its frames."""

import re

from services.gateway import errors
from services.gateway.errors import Problem
from services.gateway.routes import artifacts
from services.gateway.routes.runs import router
from tests.support.gateways import ROOT

TEXT = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")


def problems(base: type[Problem] = Problem) -> set[tuple[str, str]]:
    """Status and code of every problem, as the table writes them."""
    found = {(str(base.status), base.code)}
    for kind in base.__subclasses__():
        found |= problems(kind)
    return found


def test_every_route_is_told() -> None:
    """With its method."""
    told = {(method, path.partition("?")[0]) for method, path in re.findall(r"`(GET|HEAD|POST|DELETE) (/[^`]*)`", TEXT)}
    routes = [*router.routes, *artifacts.router.routes]
    made = {(method, re.sub(r"{\w+}", "{id}", route.path)) for route in routes for method in route.methods}  # type: ignore[attr-defined]
    assert made <= told
    assert told - made == {("GET", "/livez"), ("GET", "/readyz")}


def test_the_table_of_problems_is_complete() -> None:
    """Every class has its line; 405 is Starlette's."""
    told = set(re.findall(r"^\| (\d{3}) \| `(\w+)`", TEXT, re.MULTILINE))
    assert told == problems() | {("405", "method_not_allowed")}
    assert errors.MEDIA_TYPE in TEXT
