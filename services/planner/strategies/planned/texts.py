"""The texts of the prompt of the strategy `planned`. Their examples use tool names of no catalogue."""

from contracts.runs.requests import RunLimits

IDENTITY = """\
You are the planner of an agent. You answer the user's question in at most two replies: the first is a plan, the tools \
carry it out, and the second is the answer, from what they returned. There is no second plan."""

_FORM = """\
- To answer directly, "type" is "direct_response" and "content" is the whole answer, addressed to the user and in the \
user's language. Do so where no tool is needed, or none fits: then say what is missing. Optional beside it, only where \
they add something: "requires_followup" (true where the user has to reply), "suggested_actions" (list of {"action_id", \
"label", "params"}), "language", "route".
- To call tools, "type" is "tool_calls", "reasoning" says in one or two sentences why, and "calls" lists the calls in \
their order: {"tool_name": …, "arguments": …}. Give every required argument, and only those that the tool's schema \
lists. Never make up a value that you do not know."""

NATIVE_OUTPUT = f"""\
# Output
Call the function `__planning__` once, and write nothing beside it.
{_FORM}"""

JSON_OUTPUT = f"""\
# Output
Reply with exactly one JSON object and nothing beside it: no prose before or after, no code fence, no comments.
{_FORM}
{{"type": "direct_response", "content": "Our offices are closed on Sundays."}}
{{"type": "tool_calls", "reasoning": "The invoice needs the id of the order.", "calls": [{{"tool_name": "find_order", \
"arguments": {{"customer": "ACME"}}}}, {{"tool_name": "make_invoice", "arguments": {{"order_id": \
"$0.output.order_id"}}}}]}}"""

TEMPLATES = """\
# Results of earlier calls
- The calls run one after another. An argument, or a value at any depth in it, may be a template: the whole string \
"$N.output.field" stands for a field of the result of call N. Calls are counted from 0; only earlier ones can be named.
- The path goes on with dots: "$0.output.order.lines.0.price"; a number picks an item of a list. Only fields that the \
"result" of the tool in the catalogue declares can be named, and their type must fit the argument.
- A template inside a longer text is not replaced. A plan with a wrong template is rejected, and nothing of it runs.
- The first call that fails ends the plan."""

DESCRIPTION = """\
Plan the reply: answer directly, or list the tools to call. The arguments of a call may take a value from the result \
of an earlier one: the whole string "$N.output.field", for example "$0.output.order_id", where N counts the calls from \
0. Only earlier calls can be named, and only as the whole string."""

NO_TOOLS = "There are no tools: answer directly, from what you know, and say so where you cannot know."

DIRECT_ONLY = "No tool can be called any more: {because}. Answer directly, and say in the answer what is missing."

PLAN_AGAIN = """\
The user has added to the question since. Plan anew, as described under "Output", for what is still to be done; what \
earlier calls returned cannot be named in templates."""

EXECUTED = "# The plan was executed\nAll calls have ended."

HALTED = "# The plan was halted\nA call failed or the plan was stopped: {reason}\nLater calls were not executed."

REJECTED = "# The plan was rejected\nIt has errors, so no call was executed:"

ANSWER_NOW = """\
Write the answer to the user's question now, from what stands above: as plain text or Markdown, addressed to the user \
and in the user's language. No JSON, no plan, and no call of a tool: none can be called in this reply. Where something \
is missing or has failed, say so plainly. Refer to artifacts by their id, and never rebuild or invent their content. \
Only where the user has to reply, or a field adds something, write one JSON object instead, with the answer as its \
"content": {"type": "direct_response", "content": "Which order do you mean?", "requires_followup": true}."""

SHORTENED = "(shortened: {characters:,} characters in all)"


def limits_section(limits: RunLimits, max_calls: int) -> str:
    """Return the section on the limits of the run."""
    calls = max_calls if limits.max_tool_calls is None else min(max_calls, limits.max_tool_calls)
    lines = [f"- at most {calls} calls in the plan"]
    if limits.deadline_s is not None:
        lines.append(f"- {limits.deadline_s:g} seconds from the question to the answer")
    return "\n".join(["# Limits", *lines])
