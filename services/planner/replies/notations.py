"""Calls of tools that a model writes into its text, in the notations of the templates of models. Pure.

A server that does not know its model's notation passes it on as text. `NOTATIONS` is the table of them. Calls in JSON
(`{"name": …, "arguments": …}`) are read by `actions`; here they are found inside of the marks around them.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, NamedTuple

from contracts.tools.messages import ToolSpec
from services.planner.replies.actions.names import meant
from services.planner.replies.actions.reading import calls_of
from services.planner.replies.strict_json import NotJson, Reader, behind, loads, loads_or
from services.planner.replies.thoughts import Code

MAX_LEAD_IN_CHARACTERS = 500
"""Of prose before a call. A longer text is no announcement of one."""
MAX_CALLS = 128
MAX_MARKS = 8
"""Marks in a row around a call. Each is looked for in all that follows, as far as its end."""
MAX_BEGINNINGS = 4
"""Marks in sentences that are examined."""


class Notation(NamedTuple):
    """How a call begins, with its `name`; its arguments follow in JSON, or as `parameters` in a `body`."""

    call: re.Pattern[str]
    source: str
    parameters: re.Pattern[str] | None = None


class Call(NamedTuple):
    """A call. `are_texts`: each argument is the text of an element, whatever the tool's schema wants."""

    name: str
    arguments: Any
    are_texts: bool = False

    def fitted(self, schema: Mapping[str, Any]) -> Any:
        """Return the arguments as the schema wants them: a text where it takes one, else the JSON in the text."""
        if not self.are_texts:
            return self.arguments
        given = schema.get("properties")
        properties = given if isinstance(given, Mapping) else {}
        return {key: _fitted(text, properties.get(key)) for key, text in self.arguments.items()}


class Written(NamedTuple):
    """The calls of a text, from `start` on. `is_whole`: they are complete, and nothing follows.

    `notation`: the source of the newest call, as the table names it.
    """

    start: int
    calls: tuple[Call, ...]
    is_whole: bool
    notation: str = "names of tools"

    def fitted(self, specs: Mapping[str, ToolSpec]) -> list[tuple[str, Any]]:
        """Return name and arguments of each call, as the schema of its tool wants them."""
        found = ((call, specs.get(meant(call.name, specs.keys()) or call.name)) for call in self.calls)
        return [(call.name, call.fitted(spec.input_schema if spec else {})) for call, spec in found]


def _of(source: str, call: str, parameters: str | None = None) -> Notation:
    flags = re.DOTALL | re.IGNORECASE
    return Notation(re.compile(call, flags), source, None if parameters is None else re.compile(parameters, flags))


_NS = r"(?:\w{1,20}:|｜DSML｜|longcat_)?"
_NAME = r"(?P<name>[^\s<>\[\]{}\"'`]{1,200})"
NOTATIONS = (
    _of(
        "Qwen-Coder, Step, Nemotron; with JSON in the body: Llama 3",
        r"<function=[\"']?(?P<name>[^<>\"']{1,200})[\"']?>(?P<body>.*?)(?:</function>|(?=</tool_call>))",
        r"<parameter=[\"']?(?P<key>[^<>\"']{1,200})[\"']?>\n?(?P<value>.*?)\n?</parameter>",
    ),
    _of(
        "MiniMax, DeepSeek-V3.2, Claude",
        rf"<{_NS}invoke\s+name=[\"'](?P<name>[^<>\"']{{1,200}})[\"']\s*>(?P<body>.*?)</{_NS}invoke>",
        rf"<{_NS}parameter\s+name=[\"'](?P<key>[^<>\"']{{1,200}})[\"'][^<>]{{0,80}}>"
        rf"\n?(?P<value>.*?)\n?</{_NS}parameter>",
    ),
    _of(
        "GLM-4.5, LongCat",
        rf"{_NAME}\s*(?P<body>(?:<{_NS}arg_key>.*?)?)(?=</{_NS}tool_call>)",
        rf"<{_NS}arg_key>(?P<key>[^<>]{{1,200}})</{_NS}arg_key>\s*<{_NS}arg_value>"
        rf"\n?(?P<value>.*?)\n?</{_NS}arg_value>",
    ),
    _of(
        "Gemma 4, FunctionGemma",
        rf"call:{_NAME}\{{(?P<body>.*?)\}}(?=<tool_call\|>|<end_function_call>)",
        r"(?P<key>\w{1,200}):(?:<escape>|<\|\"\|>)?(?P<value>.*?)(?:<escape>|<\|\"\|>)?(?:,(?=\w+:)|\Z)",
    ),
    _of("Mistral", rf"{_NAME}\s*(?:\[CALL_ID\]\s*\w+\s*)?\[ARGS\]\s*"),
    _of("Kimi K2", rf"<\|tool_call_begin\|>\s*{_NAME}\s*<\|tool_call_argument_begin\|>\s*"),
    _of(
        "DeepSeek",
        rf"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?{_NAME}(?:<｜tool▁sep｜>)?\s*(?:```(?:json)?\s*)?",
    ),
    _of(
        "harmony, of gpt-oss",
        rf"(?:<\|start\|>assistant)?\s?(?:<\|channel\|>\s?\w+\s)?\s?to={_NAME}\s*(?:<\|channel\|>\s?\w+)?"
        r"\s*(?:<\|constrain\|>\s?\w+\s*)?(?:json\s*)?<\|message\|>\s*",
    ),
    _of(
        "Cline and other prompts for tools of MCP",
        r"<(?P<tag>use_mcp_tool|tool_use)>\s*(?:<server_name>[^<>]{0,200}</server_name>\s*)?<(?:tool_)?name>"
        r"(?P<name>[^<>]{1,200})</(?:tool_)?name>\s*<arguments>(?P<body>.*?)</arguments>\s*</(?P=tag)>",
        r"(?!)",
    ),
    _of("prompts in the manner of ReAct", rf"Action:\s*{_NAME}\s*\n\s*Action Input:\s*"),
)
BEGINS = (
    rf"</?{_NS}(?:tool_?calls?|function_?calls?|invoke)\b[^<>]{{0,80}}>|<function=|\[TOOL_CALLS\]|<\|python_tag\|>"
    r"|<\|tool_calls?(?:_(?:section_)?(?:begin|start))?\|?>|<｜tool[▁_]calls?[▁_]begin｜>|<start_function_call>"
    r"|<\|(?:START_ACTION|action_start|tools_prefix)\|>|<\|channel\|>\s?commentary\s[^<]{0,20}\bto="
    r"|<\|start\|>assistant\s?to=|<(?:use_mcp_tool|tool_use)>"
)
LINE_BEGINS = r"^Action:(?=[ \t]*\S)"
_BEGINS = re.compile(BEGINS, re.IGNORECASE)
_LINE_BEGINS = re.compile(rf"{LINE_BEGINS}[^\n]*\n\s*Action Input:", re.MULTILINE)
END_TOKENS = (
    r"<\|(?:im_end|im_start|eot_id|eom_id|end|endoftext|end_of_text|return|call|user|assistant|END_OF_TURN_TOKEN"
    r"|END_RESPONSE|end_of_solution|end_of_box)\|>"
    r"|<end_of_turn>|<turn\|>|<eos>|</s>|<｜end▁of▁sentence｜>|\[/?INST\]|\[e~\["
)
"""What ends a turn in the templates of ChatML, Llama, harmony, Command, Gemma, Mistral, DeepSeek and MiniMax."""
_AROUND = re.compile(
    rf"\s*(?:{END_TOKENS}|```|{BEGINS}|<\|/?tool_calls?(?:_(?:section_)?end)?\|>|<｜tool[▁_]calls?[▁_]end｜>"
    r"|<tool_call\|>|<end_function_call>|<\|(?:END_ACTION|action_end|plugin|tools_suffix)\|>)\s*|\s+",
    re.IGNORECASE,
)
_FUNCTION = re.compile(r"\s*(?P<list>\[?)\s*(?P<name>[A-Za-z_][\w.]{0,200})\s*\(")
_KEYWORD = re.compile(r"\s*(?P<key>[A-Za-z_]\w{0,200})\s*=")
_CALL_LINE = re.compile(r"\n(?=\[?[A-Za-z_][\w.]{0,200}\(|<[A-Za-z_])")
_NEXT = re.compile(r"\s*,?")
_SENTENCE = re.compile(r"[ \t]+[^\W\d_]")
_ELEMENT = re.compile(r"<(?P<name>[A-Za-z_][\w.-]{0,200})>(?P<body>.*)</(?P=name)>", re.DOTALL)
_FIELD = re.compile(r"<(?P<key>[A-Za-z_][\w.-]{0,200})>\n?(?P<value>[^<]*?)\n?</(?P=key)>")


def find(text: str, tools: AbstractSet[str]) -> Written | None:
    """Return the calls that a text ends in, or the beginning of what was meant as one; None for any other text.

    A mark begins a call at the beginning of a line; further on in one only where a whole call follows. Code is text.
    """
    code: Code | None = None
    examined = 0
    for mark in (*_BEGINS.finditer(text), *_LINE_BEGINS.finditer(text)):
        code = code or Code(text)
        is_line = not text[text.rfind("\n", 0, mark.start()) + 1 : mark.start()].strip()
        if mark.start() in code or not (is_line or mark.start() <= MAX_LEAD_IN_CHARACTERS):
            continue
        examined += 1
        if not is_line and examined > MAX_BEGINNINGS:
            continue
        written = _read(text, mark.start())
        if written.is_whole or (is_line and (written.calls or _SENTENCE.match(text, mark.end()) is None)):
            return written
    # Calls by the names of tools alone, from the beginning of a line to the end of the text:
    # `<look><q>a</q></look>`, `[look(q="a")]`, `look({…})`.
    if (whole := _all_of_tools(text, tools)) is not None:
        return whole
    lines = [line.end() for line in islice(_CALL_LINE.finditer(text, 0, MAX_LEAD_IN_CHARACTERS), MAX_BEGINNINGS)]
    literal = Code(text) if lines else ()
    behind = (_all_of_tools(text[start:], tools, start) for start in lines if start not in literal)
    return next((written for written in behind if written is not None and written.is_whole), None)


def _read(text: str, start: int) -> Written:
    calls: list[Call] = []
    reader = Reader(text, lenient=True)
    here, marks, source = start, 0, "JSON between marks"
    while len(calls) <= MAX_CALLS and marks <= MAX_MARKS:
        marks += 1
        found = next(((each, match) for each in NOTATIONS if (match := each.call.match(text, here))), None)
        try:
            if found is not None:
                here, source = found[1].end(), found[0].source
                call, here = _call(found[0], found[1], reader)
                calls.append(call)
                marks = 0
            elif (function := _FUNCTION.match(text, here)) is not None:
                more, here = _of_python(text, function)
                calls += more
                marks = 0
            elif text[here : here + 1] in {"{", "["} and not text.startswith("[TOOL_CALLS]", here):
                value, here = reader.read(here)
                for item in value if isinstance(value, list) else [value]:
                    named = calls_of(item) if isinstance(item, dict) else []
                    if not named and isinstance(item, dict) and len(item) == 1:  # Its member is named like the tool.
                        named = [{"next_node": name, "args": args} for name, args in item.items() if type(args) is dict]
                    calls += [Call(each["next_node"], each["args"] or {}) for each in named]
                    marks = 0
                    if not named:
                        return Written(start, (), is_whole=False)
            elif (around := _AROUND.match(text, here)) is not None:
                here = around.end()
            else:
                break
        except NotJson:
            return Written(start, (), is_whole=False)
    return Written(start, tuple(calls), bool(calls) and here == len(text), source)


def _call(notation: Notation, found: re.Match[str], reader: Reader) -> tuple[Call, int]:
    """Return a call, and its end. Raises NotJson."""
    name = found["name"].strip()
    if notation.parameters is None:
        arguments, end = reader.read(found.end())
        return Call(name, arguments), end
    body = found["body"]
    if body.lstrip().startswith("{"):
        return Call(name, loads(body, lenient=True)), found.end()
    fields = {each["key"].strip(): each["value"] for each in notation.parameters.finditer(body)}
    return Call(name, fields, are_texts=True), found.end()


def _all_of_tools(text: str, tools: AbstractSet[str], start: int = 0) -> Written | None:
    bare = text.strip(" \t\r\n`").removeprefix("tool_code\n")
    element = _ELEMENT.fullmatch(bare) if bare.endswith(">") else None
    if element is not None and element["name"] in tools:
        fields = {each["key"]: each["value"] for each in _FIELD.finditer(element["body"])}
        is_whole = not _FIELD.sub("", element["body"]).strip()
        return Written(start, (Call(element["name"], fields, are_texts=True),), is_whole)
    function = _FUNCTION.match(bare)
    if function is None or meant(function["name"], tools) is None:
        return None
    try:
        calls, here = _of_python(bare, function)
    except NotJson:
        return Written(start, (), is_whole=False)
    return Written(start, tuple(calls), is_whole=not bare[here:].strip())


def _of_python(text: str, function: re.Match[str] | None) -> tuple[list[Call], int]:
    """Return the calls in Python's notation, and where they end. Raises NotJson."""
    calls, here, reader = [], 0, Reader(text, lenient=True)
    is_list = function is not None and bool(function["list"])
    while function is not None:
        here = function.end()
        arguments: dict[str, Any] = {}
        if text.startswith("{", here):
            arguments, here = reader.read(here)
        while (keyword := _KEYWORD.match(text, here)) is not None:
            arguments[keyword["key"]], here = reader.read(keyword.end())
            here = behind(_NEXT, text, here)
        here = reader.skip_blanks(here)
        if not text.startswith(")", here):
            raise NotJson("')' is expected", here)
        calls.append(Call(function["name"], arguments))
        here = behind(_NEXT, text, here + 1)
        function = _FUNCTION.match(text, here)
    if is_list and not text.startswith("]", here):
        raise NotJson("']' is expected", here)
    return calls, here + is_list


def _fitted(text: str, schema: Any) -> Any:
    options = [schema, *(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())] if isinstance(schema, dict) else []
    declared = [option.get("type") for option in options if isinstance(option, dict)]
    kinds = {kind for each in declared for kind in (each if isinstance(each, list) else [each])} - {None}
    return text if "string" in kinds or not kinds else loads_or(text, text)
