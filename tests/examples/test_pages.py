"""The example of a page of one's own: it is found as a package that is installed."""

import tomllib
from pathlib import Path

import pytest

from contracts.runs.pages import Page
from services.shared.runs.pages.registry import load_pages
from tests.support.checkout import ROOT

EXAMPLE = ROOT / "examples" / "pages"


def test_the_example_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its proposal, its button and its tab. It has fewer than 60 lines."""
    assert len((EXAMPLE / "orders_page.py").read_text().splitlines()) < 60
    groups = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = tmp_path / "orders_page-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: orders-page\nVersion: 1.0\n")
    lines = [[f"[{group}]", *(f"{name} = {at}" for name, at in found.items())] for group, found in groups.items()]
    (installed / "entry_points.txt").write_text("\n".join(line for group in lines for line in group))
    for folder in (tmp_path, EXAMPLE):
        monkeypatch.syspath_prepend(folder)
    (tmp_path / "pages.toml").write_text("")
    pages = load_pages(tmp_path / "pages.toml")
    page = Page(name="orders", tab="late", selection=[7])
    [read] = pages.pages["orders"].reads_of(page)
    assert (read.tool, read.args) == ("find_orders", {"late": True, "limit": 10})
    found = {"orders": [{"id": 7, "item": "Green tea", "state": "sent"}]}
    assert pages.pages["orders"].shown(page, [found]).text == "Order #7: Green tea, sent\nMarked: [7]"
    assert pages.pages["orders"].shown(page, [None]).text == "Marked: [7]"
    assert [each.name for each in pages.actions(page)] == ["close_chat", "open_order"]
    kind = pages.payload_types["order_proposal"]
    assert (kind.faults({"item": " "}), kind.faults({"item": "Tea"})) == (["item_missing"], [])
    assert kind.summary({"item": "Tea"}) == "Order: Tea"
