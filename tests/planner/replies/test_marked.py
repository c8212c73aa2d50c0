"""Marked responses: where a block begins and ends, what becomes of it, and what is shown."""

import json
from dataclasses import asdict
from typing import Any

import pytest

from services.planner.replies.marked.blocks import Page, Response
from services.planner.replies.marked.scanner import MAX_BLOCK_BYTES, MAX_COMPARED, Echoes, MarkerScanner
from services.planner.run.ending.payload import assemble
from services.shared.runs.pages.page_types import manifest, summary
from services.shared.runs.pages.registry import load_pages

PAYLOADS_OF_PAGES = {name: page.payloads for name, page in load_pages().pages.items()}
VIEW = Page(PAYLOADS_OF_PAGES["table_view"], frozenset({"export"}))
V = '[{"label": "A", "value": "a"}]'
C = '[{"label": "Close", "action": "close_chat", "handler": "client"}]'
S = '{"mode": "update", "operations": [{"action": "remove", "column_id": "col_a"}]}'
D = '{"operations": [{"action": "delete", "row_id": 1}]}'
N = "SUGGESTED_VALUES"


def read(text: str, page: Page = VIEW, echoes: Echoes | None = None) -> dict[str, Any]:
    """The response, the same at once, by character, and in two chunks wherever these are cut."""
    found = []
    for chunks in ([text], list(text), *((text[:cut], text[cut:]) for cut in range(1, min(len(text), 400)))):
        scanner = MarkerScanner(page, echoes)
        shown = "".join(map(scanner.feed, chunks))
        last, response = scanner.finish()
        assert shown + last == response.message == scanner.message
        found.append(asdict(response))
    assert all(each == found[0] for each in found)
    return found[0]


#: Text -> what is shown; `v`, `c`, `s` and `d` for what was found; warnings.
BEGINNINGS: dict[str, tuple[str, str, str]] = {
    # No letter, digit or _ before the name.
    f"X{N}: {V}": (f"X{N}: {V}", "", ""),
    f"9{N}: {V}": (f"9{N}: {V}", "", ""),
    f"_{N}: {V}": (f"_{N}: {V}", "", ""),
    f"\u00e9{N}: {V}": ("\u00e9", "v", ""),
    f"\u597d{N}: {V}": ("\u597d", "v", ""),
    f"({N}: {V})": ("()", "v", ""),
    f"a**{N}**: {V}": ("a", "v", ""),
    f"{N}S: {V}": (f"{N}S: {V}", "", ""),
    f"{N.lower()}: {V}": (f"{N.lower()}: {V}", "", ""),
    # Bold.
    f"__{N}__: {V}": ("", "v", ""),
    f"__{N}:__ {V}": ("", "v", ""),
    f"__{N}: {V}__ x": ("x", "v", ""),
    f"****{N}***: {V}": ("*", "v", ""),
    f"**{N}: {V}** x": ("x", "v", ""),
    f"**{N}** : **{V} x": ("x", "v", ""),
    f"{N}**: {V}": ("", "v", ""),
    f"*{N}: {V}*x*": ("x*", "v", ""),
    f"**{N}: {V}\n**x**": ("**x**", "v", ""),
    f"_{N}_: {V}": (f"_{N}_: {V}", "", ""),
    # Code.
    f"`{N}: {V}`": (f"`{N}: {V}`", "", ""),
    f"`**{N}**: {V}`": (f"`**{N}**: {V}`", "", ""),
    f"`****{N}: {V}`": (f"`****{N}: {V}`", "", ""),
    f"``{N}`: {V}": (f"``{N}`: {V}", "", ""),
    f"`{N}:` {V}": ("", "v", ""),
    f"**`{N}`**: {V}": ("", "v", ""),
    f"**`{N}:`** {V}": ("", "v", ""),
    f"`{N}\uff1a`{V}": ("", "v", ""),
    f"see `x` {N}: {V}": ("see `x`", "v", ""),
    f"```{N}: {V}```": (f"```{N}: {V}```", "", ""),
    # What stands before the marker on its line.
    f"###### {N}: {V}": ("", "v", ""),
    f"####### {N}: {V}": ("#######", "v", ""),
    f"##{N}: {V}": ("##", "v", ""),
    f"> **{N}**: {V}": ("", "v", ""),
    f"* {N}: {V}": ("", "v", ""),
    f"1. {N}: {V}": ("", "v", ""),
    f"x - {N}: {V}": ("x -", "v", ""),
    f"x\r\n- {N}: {V}": ("x", "v", ""),
    # Without a colon.
    f"**{N}**\n{V}": ("", "v", ""),
    f"`{N}`\n{V}": ("", "v", ""),
    f"**{N}**\r\n  {V} x": ("x", "v", ""),
    f"**{N}**\n```json\n{V}\n```\nx": ("x", "v", ""),
    f"## {N}\n{V}": ("", "v", ""),
    f"- {N} \n```\n{V}\n```x": ("x", "v", ""),
    f"{N}\n{V}": (f"{N}\n{V}", "", ""),
    f"**{N}** {V}": (f"**{N}** {V}", "", ""),
    f"**{N}**\n\n{V}": (f"**{N}**\n\n{V}", "", ""),
    f"so **{N}**\n{V}": (f"so **{N}**\n{V}", "", ""),
    # Fences.
    f"```\n\n**{N}:**\n{V}\n\n```\nx": ("x", "v", ""),
    f"x ```\n{N}: {V}\n```": ("x ```\n\n```", "v", ""),
    f"   ```\n{N}: {V}```": ("", "v", ""),
    f"    ```\n{N}: {V}\n```": ("```\n\n```", "v", ""),
    f"- a\n  - b\n    ```\n    {N}: {V}\n    ```\nx": ("- a\n  - b\n    \nx", "v", ""),
    f"{N}: ```json\r\n{V}\r\n```": ("", "v", ""),
    f"{N}:\n````json\n{V}\n```": (f"{N}:\n````json\n{V}\n```", "", ""),
    f"{N}:\n```js on\n{V}\n```": (f"{N}:\n```js on\n{V}\n```", "", ""),
    f"{N}:\n```json\n{V}\nno fence": ("no fence", "v", ""),
    f"{N}: {V}\n```py\nx\n```": ("```py\nx\n```", "v", ""),
    # What follows the colon.
    f"{N}\t\r\n :\t\r\n {V}": ("", "v", ""),
    f"{N}\u00a0: {V}": (f"{N}\u00a0: {V}", "", ""),
    f"{N}: see {V}": (f"{N}: see {V}", "", ""),
    f"{N}:: {V}": (f"{N}:: {V}", "", ""),
    f"{N}: {N}: {V}": (f"{N}:", "v", ""),
    f"{N}: [nullable]": (f"{N}: [nullable]", "", ""),
    f"{N}: [a]": (f"{N}: [a]", "", ""),
    f"{N}: [ null ]": ("", "v", "invalid_suggestion_item"),
    f"{N}: [1]x": ("x", "v", "invalid_suggestion_item"),
    f"{N}: ['a'] x": ("x", "", "invalid_json"),
    f"{N}: (1)": (f"{N}: (1)", "", ""),
}


@pytest.mark.parametrize("text", BEGINNINGS)
def test_beginnings(text: str) -> None:
    """Which text begins a block, and which is prose."""
    shown, found, warnings = BEGINNINGS[text]
    response = read(text)
    assert response["message"] == shown
    fields = {"v": "suggested_values", "c": "suggested_actions"}
    assert "".join(key for key, field in fields.items() if response[field] is not None) == found
    assert response["warnings"] == warnings.split()


LABEL = json.dumps('A\u2028\U0001f600 \\" [ } SCHEMA_PROPOSAL: {')
EXPORT = {"label": "E", "action": "export", "handler": "client"}
ODD_VALUES = '["a", {"label": "\\t", "value": "a"}, {"label": "\u00a0", "value": "b"}, {"label": 1, "value": ""}]'
ODD_ACTIONS = '[{"label": "E", "action": "export"}, {"label": "E", "action": "x"}, {"action": "export"}]'
SCHEMA = {"type": "schema_proposal", "data": json.loads(S)}
DATA = {"type": "data_proposal", "data": json.loads(D)}


def warned(*codes: str) -> dict[str, Any]:
    return {"warnings": [*codes]}


FATES: dict[str, tuple[str, dict[str, Any]]] = {
    f"{N}: []": ("", {"suggested_values": []}),
    f"{N}: {{}} x": ("x", warned("wrong_json_type")),
    f"DATA_PROPOSAL: [{D}] x": ("x", warned("wrong_json_type")),
    f'{N}: [{{"label": {LABEL}, "value": "a"}}]x': (
        "x",
        {"suggested_values": [{"label": json.loads(LABEL), "value": "a"}]},
    ),
    f"{N}: {ODD_VALUES}": (
        "",
        {"suggested_values": [{"label": "\u00a0", "value": "b"}], **warned(*["invalid_suggestion_item"] * 3)},
    ),
    f"{N}: []\n{N}: {V}": ("", {"suggested_values": [], **warned("duplicate_block")}),
    f"SUGGESTED_ACTIONS: {json.dumps([{**EXPORT, 'data': 1}])}": ("", {"suggested_actions": [EXPORT]}),
    f"SUGGESTED_ACTIONS: {ODD_ACTIONS}": (
        "",
        {
            "suggested_actions": [],
            **warned("invalid_action_handler", "invalid_suggestion_item", "unregistered_action"),
        },
    ),
    f"SCHEMA_PROPOSAL: {S}\nSCHEMA_PROPOSAL: {S}\n{N}: {V}": (
        "",
        {
            "custom_payload": SCHEMA,
            "suggested_values": json.loads(V),
            **warned("extra_payload_dropped", "suggestions_with_proposal"),
        },
    ),
    f"SCHEMA_PROPOSAL: {{}}\nDATA_PROPOSAL: {D}": (
        "",
        {"custom_payload": DATA, **warned("mode_missing", "operations_missing")},
    ),
    'a SCHEMA_PROPOSAL: {"mode": "Update", "operations": []} b': ("a  b", warned("mode_invalid", "operations_empty")),
    'DATA_PROPOSAL: {"operations": {"action": "add"}}': ("", warned("operations_empty")),
    'DATA_PROPOSAL: {"a": 1e400}': ("", warned("invalid_json")),
    'DATA_PROPOSAL: {"a": NaN}': ("", warned("invalid_json")),
    f'DATA_PROPOSAL: {{"operations": [], {D[1:]}': ("", {"custom_payload": DATA}),
    f"{N}: [{'[' * 64}{']' * 64}]": ("", warned("invalid_json")),
    f"{N}: [{'[' * 63}{']' * 63}]": ("", {"suggested_values": [], **warned("invalid_suggestion_item")}),
    # The end of the text.
    f"x {N}": (f"x {N}", {}),
    f"x **{N}** \n": (f"x **{N}**", {}),
    f"x {N} :": ("x", warned("truncated_marker")),
    f"x `{N}:": ("x", warned("truncated_marker")),
    f"x {N}: [ ": ("x", warned("truncated_marker")),
    f'x {N}: ["': ("x", warned("truncated_json")),
    f"x\n**{N}**\n[": (f"x\n**{N}**\n[", {}),
    "x\n```json\n": ("x\n```json", {}),
    "x\n- ": ("x\n-", {}),
    f"**{N}: {V}**": ("", {"suggested_values": json.loads(V)}),
    f"{N}:\n```\n{V}\n``": ("``", {"suggested_values": json.loads(V)}),
    " \n\u00a0x\u00a0\r\n": ("\u00a0x\u00a0", {}),
}


@pytest.mark.parametrize("text", FATES)
def test_fates(text: str) -> None:
    """What becomes of a block, and of one that the text does not end."""
    shown, fields = FATES[text]
    assert read(text) == asdict(Response(shown)) | fields


@pytest.mark.parametrize("page", [*PAYLOADS_OF_PAGES, "another"])
def test_pages(page: str) -> None:
    """A payload counts on its pages, and is hidden on all."""
    types = PAYLOADS_OF_PAGES.get(page, ())
    response = read(f"a DATA_PROPOSAL: {D}", Page(types))
    assert response["message"] == "a"
    assert response["warnings"] == ([] if "data_proposal" in types else ["payload_not_available_on_page"])


def test_a_block_has_a_greatest_size() -> None:
    """What is longer is hidden to its end, and the scan goes on behind it."""
    for size, warnings in ((MAX_BLOCK_BYTES, ["invalid_suggestion_item"]), (MAX_BLOCK_BYTES + 1, ["block_too_large"])):
        scanner = MarkerScanner(VIEW)
        filler = "\u00e9" * (size // 2 - 2) + "x" * (size % 2)
        text = f'{N}: ["{filler}"] x {N}: ['
        assert scanner.feed(text) == "x"
        assert sorted(scanner.finish()[1].warnings) == sorted([*warnings, "truncated_marker"])


def test_a_quotation_stays() -> None:
    """A block that the conversation has shown the model is text, with any blanks; markers inside it are text too."""
    quoted = f'DATA_PROPOSAL: {{"operations": [{{"action": "delete", "row_id":  1}}], "x": "{N}: []"}}'
    echoes = Echoes(["cell", f"row: {quoted}".replace(" ", "\n").replace('{"', '{ "')])
    response = read(f"The cell says\n**{quoted}**.\n{N}: {V}", echoes=echoes)
    assert response["message"] == f"The cell says\n**{quoted}**."
    assert (response["custom_payload"], response["warnings"]) == (None, ["echoed_block"])
    assert response["suggested_values"] == json.loads(V)
    scanner = MarkerScanner(VIEW, echoes)
    assert scanner.feed(quoted[:-1]) == "", "it is held back until it is known"
    assert scanner.open_block == "DATA_PROPOSAL"
    assert scanner.feed("}") == quoted


def test_blocks_are_compared_so_many_times() -> None:
    """Each once; after many others a block is taken for a quotation. What is shown later counts from then on."""
    echoes = Echoes(["a [b", "c"])
    assert [str(each) in echoes for each in range(MAX_COMPARED + 1)] == [False] * MAX_COMPARED + [True]
    echoes.add(["7 {"])
    assert ("7" in echoes, "8" in echoes, "a [b" in echoes) == (True, False, True)


def test_cancelled() -> None:
    """What is shown stays, and nothing else; what was wrong before is still said."""
    scanner = MarkerScanner(VIEW)
    shown = scanner.feed(f"a {N}: {V} b DATA_PROPOSAL: [] c {N}")
    response = scanner.cancel()
    assert (shown, response.message, response.suggested_values) == ("a  b  c", "a  b  c", None)
    assert response.warnings == ["cancelled", "wrong_json_type"]


def test_a_response_is_a_final_answer() -> None:
    """Suggestions and the payload get into the payload of the run; what was not said is left out, and [] is not."""
    scanner = MarkerScanner(VIEW)
    scanner.feed(f"Ok. {N}: [] SUGGESTED_ACTIONS: {C} DATA_PROPOSAL: {D}")
    payload = assemble(scanner.finish()[1].final_args("1f"), last_observation=None, artifacts={}, sources=[])
    assert payload.raw_answer == "Ok."
    assert [each.model_dump() for each in payload.suggested_actions] == [
        {"action_id": "close_chat", "label": "Close", "params": {"handler": "client"}}
    ]
    proposal = {"type": "data_proposal", "data": json.loads(D), "id": "1f", "summary": "Data proposal: 1 deletion"}
    assert payload.extra == {"suggested_values": [], "client_actions": json.loads(C), "custom_payload": proposal}
    nothing = Response("Ok.").final_args("1f")
    assert nothing == {"answer": "Ok.", "suggested_actions": [], "extra": {}, "warnings": []}


def test_summaries() -> None:
    """One line about a payload, which never fails; the manifest leaves out what has none."""
    assert summary("data_proposal", {"operations": []}) == "Data proposal: empty"
    assert summary("schema_proposal", {"mode": "update"}) == "Schema proposal: empty proposal"
    assert summary("schema_proposal", {"mode": "create"}) == "A proposal to make a table or to change its columns"
    assert summary("data_proposal", {"operations": [1]}) == "A proposal to change rows"
    assert len(summary("schema_proposal", {"mode": "create", "table_name": "a\n" * 400, "operations": []})) == 300
    assert "\n" not in summary("schema_proposal", {"mode": "create", "table_name": "a\nb", "operations": []})
    assert summary("chart", {}) == "Unknown payload type: chart"
    listed = manifest([{"payload_id": "1", "summary": "A"}, {"payload_id": "2", "summary": ""}, {"summary": "B"}])
    assert listed == "AVAILABLE PAYLOADS (use get_payload tool to retrieve full data):\n- [1] A"
    assert manifest([{"payload_id": "2"}]) is None
