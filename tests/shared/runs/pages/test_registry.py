"""The registries of pages: what the file and plug-ins may add, and what stops the start."""

from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from contracts.runs.pages import ClientAction, Page
from services.shared.runs.pages import PageType, PayloadType, registry
from services.shared.runs.pages.page_types import help_text
from services.shared.runs.pages.registry import InvalidPages, Pages, UnknownPlace, load_pages

ORDERS = """
[payload_types.order_proposal]
marker = "ORDER_PROPOSAL"
schema = {type = "object", required = ["item"]}

[client_actions.open_order]
description = "Opens an order."

[pages.orders]
persona = "You sell."
payloads = ["order_proposal"]
tools = ["find_orders"]
reads = [{tool = "find_orders", args = {limit = 3}}]
context = "The newest orders."

[pages.orders.tabs.late]
persona = "They wait."
payloads = ["data_proposal", "order_proposal"]
tools = ["send_reminder"]
client_actions = ["open_order", "close_chat"]

[pages.orders.tabs.late.subtabs.own]
without_tools = ["find_orders"]

[pages.table_view]
persona = "Say it in verse."
"""


def loaded(folder: Path, text: str) -> Pages:
    file = folder / "pages.toml"
    file.write_text(text)
    return load_pages(file)


def test_a_file_adds_pages_and_changes_known_ones(tmp_path: Path) -> None:
    """What a tab adds comes after what the page has; of a known page the fields that are given change."""
    pages = loaded(tmp_path, ORDERS)
    page, tab = Page(name="orders"), Page(name="orders", tab="late")
    subtab = Page(name="orders", tab="late", subtab="own")
    assert (pages.payloads(page), pages.payloads(tab)) == (["order_proposal"], ["order_proposal", "data_proposal"])
    assert [each.name for each in pages.actions(tab)] == ["close_chat", "open_order"]
    offered = {
        name: [tool for tool in ("find_orders", "send_reminder", "other") if pages.offers(where, tool)]
        for name, where in (("page", page), ("tab", tab), ("subtab", subtab))
    }
    both = ["find_orders", "send_reminder"]
    assert offered == {"page": ["find_orders"], "tab": both, "subtab": ["send_reminder"]}
    assert pages.pages["orders"].shown(page, [{"orders": ["a" * 999]}]).text.startswith("The newest orders.\nfind_ord")
    assert pages.payload_types["order_proposal"].faults({}) == ["payload_invalid"]
    assert pages.payload_types["order_proposal"].faults({"item": 1}) == []
    changed, known = pages.pages["table_view"], load_pages().pages["table_view"]
    assert changed == known.model_copy(update={"persona": "Say it in verse."})
    for wrong, field in (
        (Page(name="order"), "name"),
        (Page(name="orders", tab="lat"), "tab"),
        (Page(name="orders", subtab="own"), "subtab"),
    ):
        with pytest.raises(UnknownPlace, match="there is no") as refused:
            pages.parts(wrong)
        assert refused.value.field == field


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[pages.a]\npayloads = ["chart"]', "page a: there is no payload type 'chart'; there are: data_proposal, sch"),
        ('[pages.a.tabs.b]\nclient_actions = ["jump"]', "page a, tab b: there is no client action 'jump'"),
        ('[pages.a.tabs.b.subtabs.c]\npayloads = ["x"]', "page a, subtab b.c: there is no payload type 'x'"),
        ('[pages.a]\ntools = ["no tool"]', "pages.a: tools.0"),
        ("[pages.a]\nperson = 1", "pages.a: person"),
        ("[pages.A]", "pages.A: name"),
        ('[payload_types.a]\nmarker = "data"', "payload_types.a: marker"),
        ("[payload_types.a]", "needs a marker"),
        ('[payload_types.a]\nmarker = "DATA_PROPOSAL"', "the marker DATA_PROPOSAL belongs to two types"),
        ('[payload_types.a]\nmarker = "SUGGESTED_VALUES"', "the marker SUGGESTED_VALUES belongs to two"),
        ('[payload_types.a]\nmarker = "A"\nschema = {"$ref" = "http://x.example/"}', "schema: "),
        ("[page.a]", "there is no table page"),
        ("pages = 1", "pages: must hold a table"),
        ("[pages", "is not TOML"),
        ('help = "nowhere"', "help: "),
    ],
)
def test_what_nobody_registered_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    """With the name, and what there is."""
    with pytest.raises(InvalidPages) as refused:
        loaded(tmp_path, text)
    assert said in str(refused.value)


def test_plug_ins_are_found_by_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of the registry's kind; anything else stops the start, and so does a second one of a name."""
    known = {
        "board": PageType(name="board", payloads=("card",), context=lambda page, _: page.table_id or "none"),
        "card": PayloadType(name="card", marker="CARD", summarize=lambda data: data["title"]),
        "flip": ClientAction(name="flip", description="Turns it."),
        "again": PageType(name="table_view"),
    }

    def found(*names: str, table: dict[str, str]) -> Any:
        def points(group: str) -> list[EntryPoint]:
            return [EntryPoint(each, f"plug:{each}", group) for each in names if f"runwire.{table[each]}" == group]

        return points

    monkeypatch.setattr(EntryPoint, "load", lambda point: known[point.name])
    of = {"board": "pages", "card": "payload_types", "flip": "client_actions", "again": "pages"}
    monkeypatch.setattr(registry, "entry_points", found("board", "card", "flip", table=of))
    pages = loaded(tmp_path, '[pages.board]\nclient_actions = ["flip"]')
    assert pages.pages["board"].shown(Page(name="board", table_id="t"), []).text == "t"
    assert [each.name for each in pages.actions(Page(name="board"))] == ["close_chat", "flip"]
    card = pages.payload_types["card"]
    assert (card.summary({"title": "One"}), card.summary({})) == ("One", "")
    for names, table, said in (
        (("again",), of, "plug-in again (plug:again): table_view is registered already"),
        (("flip",), {"flip": "pages"}, "plug-in flip (plug:flip) is no PageType"),
        (("gone",), {"gone": "pages"}, "plug-in gone (plug:gone) cannot be loaded: 'gone'"),
    ):
        monkeypatch.setattr(registry, "entry_points", found(*names, table=table))
        (tmp_path / names[0]).mkdir()
        with pytest.raises(InvalidPages) as refused:
            loaded(tmp_path / names[0], "")
        assert said in str(refused.value)


def test_a_plug_in_may_raise_anything() -> None:
    """Then a payload is invalid, and its summary is the type's."""
    kind = PayloadType(name="a", marker="A", description="One", parse=lambda data: [data[0]], summarize=lambda _: 1 / 0)
    assert (kind.faults({}), kind.summary({})) == (["payload_invalid"], "One")
    many = {"operations": [{"action": "delete"}] * 1001}
    assert load_pages().payload_types["data_proposal"].faults(many) == ["operations_too_many"]


def test_help_is_filtered_by_role_and_page(tmp_path: Path) -> None:
    """The contents list names all topics of a role; the texts are those for the page."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "keys.md").write_text('+++\ntitle = "Keys"\nroles = ["admin"]\norder = -1\n+++\nMake some.\n')
    pages = loaded(tmp_path, 'help = "more"\n[pages.start]')
    admin, user = (help_text(pages.topics, "start", role) for role in ("admin", "user"))
    assert admin.startswith("Topics:\n- Keys\n- The assistant")
    assert "Keys\nMake some." in admin
    assert "Keys" not in user
    assert "- Proposals: " in user
    assert "green" not in user
    assert "green" in help_text(pages.topics, "table_view", "user")
    (tmp_path / "more" / "keys.md").write_text("# Keys\n")
    with pytest.raises(InvalidPages, match=r"keys\.md: does not begin with front matter"):
        loaded(tmp_path / "more" / "..", 'help = "more"\n[pages.start]')
