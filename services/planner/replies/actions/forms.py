"""The two forms of an action that the prompt asks for: a check of each, and the arguments of `final_response`.

`unified` has the fields `next_node` and `args`; `legacy` has five. The text around an object does not matter here.
`final_args` makes one text of the `answer`, and keeps the fields beside it.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from contracts.runs.decisions import FINAL_RESPONSE, PLAN
from services.planner.replies.actions import names
from services.planner.replies.actions.arguments import answer_keys, answer_text, as_object, has_steps, pick_answer
from services.planner.replies.strict_json import ANSWER_KEYS

MAX_KEYS_LISTED = 20
_ENVELOPE = frozenset({"role", "type", "tool_calls", "function_call", "refusal"})
_MAY_STAND_BESIDE = frozenset({*names.CONTROL_KEYS, *names.FINAL_FIELDS, *ANSWER_KEYS, *_ENVELOPE})


def has_answer(action: Mapping[str, Any]) -> bool:
    """Whether an object without a node holds an answer.

    It does not if it names something else to call. The keys `text`, `response` and `content` are common, and `args` may
    belong to a tool, so these count only where no unknown key is beside them.
    """
    if names.names_another(action):
        return False
    if any(answer_text(action.get(key)) is not None for key in names.STREAMED_KEYS):
        return True
    if not set(action) <= _MAY_STAND_BESIDE:
        return False
    args = action.get("args")
    inside = isinstance(args, dict) and any(answer_text(args.get(key)) is not None for key in names.STREAMED_KEYS)
    return inside or answer_text(pick_answer(action), known_only=True) is not None


def says_something(action: Mapping[str, Any]) -> bool:
    """Whether an object with a final node holds an answer anywhere."""
    return "answer" in final_args(action, [])


def final_args(action: Mapping[str, Any], warnings: list[str]) -> dict[str, Any]:
    """Return the arguments of a final response: `answer` if there is one, the known fields, and all else in `args`.

    The answer is in `args`, or is `args` itself, or is beside `args`; the first of these counts. Nothing else is ever
    shown as the answer.
    """
    given = action.get("args")
    args = _encoded(given) if isinstance(given, str) else given
    fields = dict(args) if isinstance(args, dict) else {}
    answer = pick_answer(fields)
    if answer is None and args is None:
        answer = given or None
    elif isinstance(args, list):
        answer = args if any(isinstance(item, str) for item in args) else None
    elif not isinstance(args, dict | bool):
        answer = args
    if answer is None:
        answer = pick_answer(action)
    # The known fields beside `args`, or all where the object has neither node nor `args`.
    bare = "next_node" not in action and "args" not in action
    beside = {
        key: value
        for key, value in action.items()
        if key not in fields
        and key not in names.CONTROL_KEYS
        and (key in names.FINAL_FIELDS or (bare and key not in _ENVELOPE))
    }
    _warn_of_dropped(action, args, fields, beside, warnings)
    fields |= beside
    text = answer_text(answer)
    if text is not None and answer_text(answer, known_only=True) is None:
        warnings.append(
            f"the answer was {'an object' if isinstance(answer, dict) else 'a list'}; its JSON text is given"
        )
    rest = {key: value for key, value in fields.items() if key not in ANSWER_KEYS}
    return rest if text is None else {"answer": text, **rest}


def _warn_of_dropped(
    action: Mapping[str, Any], args: Any, fields: Mapping[str, Any], beside: Mapping[str, Any], warnings: list[str]
) -> None:
    """Add warnings for what is dropped: further answers, and unknown fields beside `args`."""
    answers = [*answer_keys(fields), *answer_keys({key: value for key, value in action.items() if key in ANSWER_KEYS})]
    if args is not None and not isinstance(args, dict):
        answers = ["args", *answers]
    dropped = [f"`{key}` was dropped: the answer is in `{answers[0]}`" for key in answers[1:]]
    known = {*fields, *beside, *names.CONTROL_KEYS, *ANSWER_KEYS, *_ENVELOPE}
    dropped += [
        f"`{key[: names.MAX_KEY_CHARACTERS]}` was dropped: it stands beside `args`"
        for key in action
        if key not in known
    ]
    warnings += dropped[:MAX_KEYS_LISTED]


def _encoded(text: str) -> dict[str, Any] | None:
    """Return the fields of an `args` that is a text with an encoded object. None: the text itself is the answer."""
    fields = as_object(text) if names.may_be_encoded(text) else None
    if fields is None or (pick_answer(fields) is None and not set(fields) <= {*names.FINAL_FIELDS, *ANSWER_KEYS}):
        return None
    return fields


FIVE_FIELDS = ("thought", "next_node", "args", "plan", "join")


def two_field_deviation(obj: Any, tools: AbstractSet[str]) -> str:
    """Return what deviates from the two-field form; empty for a valid object.

    Names may be padded, and opcodes may be in another case.
    """
    if not isinstance(obj, dict):
        return f"the object stands inside a {'list' if isinstance(obj, list) else 'text'}"
    odd = [key for key in obj if key not in {"next_node", "args"}]
    if odd:
        return f"`{odd[0][: names.MAX_KEY_CHARACTERS]}` is no field of an action; it has `next_node` and `args` only"
    for key, kind, name in (("next_node", str, "a text"), ("args", dict, "an object")):
        if key not in obj:
            return f"`{key}` is missing"
        if not isinstance(obj[key], kind):
            return f"`{key}` must be {name}"
    node, args = names.opcode_of(obj["next_node"], tools), obj["args"]
    if not node:
        return "`next_node` is empty"
    if node == FINAL_RESPONSE:
        answers = [args[key] for key in names.STREAMED_KEYS if key in args]
        return "" if all(isinstance(answer, str) for answer in answers) else "`args.answer` must be a text"
    return _plan_deviation(args) if node == PLAN else ""


def _plan_deviation(args: Mapping[str, Any]) -> str:
    steps = args.get("steps")
    if not isinstance(steps, list):
        return "`args.steps` must be a list"
    for number, step in enumerate(steps):
        if not isinstance(step, dict) or not isinstance(step.get("node"), str) or not step["node"].strip():
            return f"`args.steps[{number}]` must be an object with `node` and `args`"
        if not isinstance(step.get("args", {}), dict):
            return f"`args.steps[{number}].args` must be an object"
    join = args.get("join")
    return "" if join is None or isinstance(join, dict) else "`args.join` must be an object or null"


def five_field_deviation(obj: Mapping[str, Any], tools: AbstractSet[str]) -> str:
    """Return what deviates from the five-field form; empty for a valid object.

    All fields but `next_node` are optional.
    """
    inner = obj.get("action")
    if isinstance(inner, Mapping) and set(obj) <= {"thought", "action"}:
        obj = inner
    odd = [key for key in obj if key not in FIVE_FIELDS]
    if odd:
        name = odd[0][: names.MAX_KEY_CHARACTERS]
        return f"`{name}` is no field of an action; it has `thought`, `next_node`, `args`, `plan` and `join` only"
    if "next_node" not in obj:
        return "`next_node` is missing"
    node, plan = obj["next_node"], obj.get("plan")
    if isinstance(node, str) and names.opcode_of(node, tools) in {FINAL_RESPONSE, PLAN}:
        return (
            "`next_node` must be the name of a tool, or null for an answer in `args` and for a list of steps in `plan`"
        )
    if plan is not None and not isinstance(plan, list):
        return "`plan` must be a list of steps or null"
    if node is None and plan is None and has_steps(obj) and not says_something(obj):
        return "the steps must stand in `plan`"
    return ""
