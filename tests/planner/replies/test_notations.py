"""Calls of tools in the notations of the templates of models."""

import json
from typing import Any

import pytest

from services.planner.replies.notations import find

TOOLS = frozenset({"look", "note"})
JSON = '{"q": "tea"}'
NOTATIONS = {
    "Hermes": f'<tool_call>\n{{"name": "look", "arguments": {JSON}}}\n</tool_call>',
    "Qwen-Coder": "<tool_call>\n<function=look>\n<parameter=q>\ntea\n</parameter>\n</function>\n</tool_call>",
    "without its frame": "<function=look>\n<parameter=q>\ntea\n</parameter>\n</function>",
    "without its end": "<tool_call>\n<function=look>\n<parameter=q>\ntea\n</parameter>\n</tool_call>",
    "Llama": f"<function=look>{JSON}</function>",
    "GLM": "<tool_call>look\n<arg_key>q</arg_key>\n<arg_value>tea</arg_value>\n</tool_call>",
    "invoke": '<function_calls>\n<invoke name="look">\n<parameter name="q">tea</parameter>\n</invoke>\n'
    "</function_calls>",
    "MiniMax": '<minimax:tool_call>\n<invoke name="look">\n<parameter name="q">tea</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "DeepSeek-V3.2": '<｜DSML｜function_calls>\n<｜DSML｜invoke name="look">\n'
    '<｜DSML｜parameter name="q" string="true">tea</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    "Mistral, a list": f'[TOOL_CALLS] [{{"name": "look", "arguments": {JSON}}}]',
    "Mistral": f"[TOOL_CALLS]look[ARGS]{JSON}</s>",
    "Llama 3": f'<|python_tag|>{{"name": "look", "parameters": {JSON}}}<|eom_id|>',
    "Kimi": "<|tool_calls_section_begin|><|tool_call_begin|>look<|tool_call_argument_begin|>"
    f"{JSON}<|tool_call_end|><|tool_calls_section_end|>",
    "DeepSeek": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{JSON}\n```"
    "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "DeepSeek-V3.1": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>{JSON}<｜tool▁call▁end｜>",
    "harmony": f"<|channel|>commentary to=look <|constrain|>json<|message|>{JSON}<|call|>",
    "ReAct": f"Action: look\nAction Input: {JSON}",
    "Granite, Phi": f'<|tool_call|>[{{"name": "look", "arguments": {JSON}}}]<|/tool_call|>',
    "LFM": '<|tool_call_start|>[look(q="tea")]<|tool_call_end|>',
    "OLMo": '<function_calls>\nlook(q="tea")\n</function_calls>',
    "Command": f'<|START_ACTION|>[{{"tool_name": "look", "parameters": {JSON}}}]<|END_ACTION|>',
    "LongCat": "<longcat_tool_call>look\n<longcat_arg_key>q</longcat_arg_key>\n"
    "<longcat_arg_value>tea</longcat_arg_value>\n</longcat_tool_call>",
    "Gemma": '<|tool_call>call:look{q:<|"|>tea<|"|>}<tool_call|>',
    "Nemotron": f'<TOOLCALL>[{{"name": "look", "arguments": {JSON}}}]</TOOLCALL>',
    "Cline": f"<use_mcp_tool>\n<server_name>x</server_name>\n<tool_name>look</tool_name>\n"
    f"<arguments>\n{JSON}\n</arguments>\n</use_mcp_tool>",
    "tool_use": f"<tool_use>\n<name>look</name>\n<arguments>{JSON}</arguments>\n</tool_use>",
    "Apertus": f'<|tools_prefix|>[{{"look": {JSON}}}]<|tools_suffix|>',
    "Python": '[look(q="tea")]',
    "JavaScript": f"look({JSON})",
    "its name as an element": "<look>\n<q>tea</q>\n</look>",
}


@pytest.mark.parametrize("name", NOTATIONS)
def test_every_notation_is_a_call(name: str) -> None:
    """Alone, behind an announcement, several at once; cut or with more text it is no whole one."""
    text = NOTATIONS[name]
    whole = find(text, TOOLS)
    assert whole is not None
    assert [(call.name, call.arguments) for call in whole.calls] == [("look", json.loads(JSON))]
    assert whole.is_whole
    if name in {"Python", "JavaScript", "its name as an element"}:
        return
    announced = find(f"I will look it up.\n\n{text}", TOOLS)
    assert announced is not None
    assert (announced.is_whole, announced.calls) == (True, whole.calls)
    for more in (f"{text}\nIt is grown in Assam.", text[:-12]):
        cut = find(more, TOOLS)
        assert cut is not None
        assert not cut.is_whole or cut.calls == whole.calls
    assert find(f"`{text.splitlines()[0]}` and\n```\n{text.replace('```', '')}\n```\nare examples.", TOOLS) is None


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call> is a tag.",
        "Use <tool_call> for it.",
        "<b>look</b>",
        "[1, 2]",
        "[see(q=1)]",
        "Action: buy milk",
        "[x]",
    ],
)
def test_what_is_no_call(text: str) -> None:
    """Marks in sentences, elements and lists of something else."""
    assert find(text, TOOLS) is None


def test_several_calls() -> None:
    """Each of them."""
    found = find(f"{NOTATIONS['Qwen-Coder']}\n{NOTATIONS['Qwen-Coder']}", TOOLS)
    assert found is not None
    assert ([call.name for call in found.calls], found.is_whole) == (["look", "look"], True)


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "string"}, "7", "7"),
        ({"type": "integer"}, "7", 7),
        ({"type": ["integer", "null"]}, "None", None),
        ({"type": "array"}, '["a"]', ["a"]),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, '{"a": 1}', {"a": 1}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "null"),
        ({"type": "number"}, "seven", "seven"),
        ({}, "7", "7"),
        (None, "7", "7"),
    ],
)
def test_texts_become_what_the_schema_wants(schema: Any, text: str, value: Any) -> None:
    """Elements have no types; a text stays one where the tool takes texts."""
    found = find(f"<function=look><parameter=q>{text}</parameter></function>", TOOLS)
    assert found is not None
    assert found.calls[0].fitted({"properties": {"q": schema}}) == {"q": value}
