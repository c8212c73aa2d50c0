"""Which calls need an approval, and the digest that an approval is about."""

import hashlib
from typing import Any

import pytest
import rfc8785

from contracts.runs.pauses import ApprovalRule, CallApproval
from contracts.tools.messages import CallRequested, ToolSpec
from services.shared.tools.approvals import asking_rule, call_digest, check_rules, is_allowed

FEW = {"properties": {"sum": {"type": "number", "minimum": 0, "maximum": 5}}, "required": ["sum"]}
ALWAYS = ApprovalRule(name="all", tools=["*"])
LARGE = ApprovalRule(name="large", tools=["pay"], arguments={"properties": {"sum": {"minimum": 100}}})
SMALL = ApprovalRule(name="small", tools=["pay"], arguments=FEW, ask="never")
RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"


def digest(arguments: dict[str, Any], **other: Any) -> str:
    fields = {"tenant": "t", "run": RUN, "call_id": "1-1", "tool": "pay", "spec": "d" * 24, "revision": 1, **other}
    return call_digest(arguments=arguments, **fields)


def call(approval: CallApproval | None = None, **fields: Any) -> CallRequested:
    message: dict[str, Any] = {
        "call_id": "1-1",
        "run_id": RUN,
        "tenant": "t",
        "tool": "pay",
        "spec": "d" * 24,
        "step": 1,
    }
    return CallRequested.model_validate({**message, "args": {"sum": 500}, "approval": approval, **fields})


def test_the_first_rule_that_matches_counts() -> None:
    """A rule that waives the approval waives it for the rules behind it, too."""
    rules = [SMALL, LARGE]
    assert asking_rule(rules, "pay", {"sum": 500}) == LARGE
    assert asking_rule(rules, "pay", {"sum": 50}) is None
    assert asking_rule([SMALL, ALWAYS], "pay", {"sum": 5}) is None
    assert asking_rule([ALWAYS, SMALL], "pay", {"sum": 5}) == ALWAYS
    assert asking_rule(rules, "look", {}) is None


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ([ALWAYS, ALWAYS], "two approval rules have the name 'all'"),
        ([ApprovalRule(name="a", tools=["*", "pay"])], "must be alone"),
        ([ApprovalRule(name="a", tools=["pay"], arguments={"type": "nothing"})], "rule 'a': `arguments` is no usable"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(rules: list[ApprovalRule], reason: str) -> None:
    """With the name of the rule."""
    with pytest.raises(ValueError, match=reason):
        check_rules(rules)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "a call without arguments passes"),
        ({"properties": {"sum": {"type": "number", "maximum": 5}}}, "a call without arguments passes"),
        ({"properties": {"sum": {"maximum": 5}}, "required": ["sum"]}, "`sum` of any type passes"),
        ({"properties": {"to": True, "sum": {"const": 5}}, "required": ["sum"]}, "a call without `to` passes"),
        ({"required": ["sum"], "not": {"properties": {"sum": {"minimum": 6}}}}, "`not` proves nothing"),
        ({"anyOf": [FEW, {"required": ["all"], "properties": {"all": {}}}]}, "`all` of any type passes"),
        ({"properties": {"a": {"type": "array", "items": {"pattern": "x"}}}, "required": ["a"]}, "`pattern` limits"),
        ({"properties": {"a": {"type": "object", "properties": {"b": {}}}}, "required": ["a"]}, "without `b` passes"),
    ],
)
def test_a_rule_that_waives_is_proven(arguments: dict[str, Any], reason: str) -> None:
    """A rule that asks needs no proof."""
    with pytest.raises(ValueError, match=reason):
        check_rules([ApprovalRule(name="r", tools=["pay"], arguments=arguments, ask="never")])
    check_rules([SMALL, ApprovalRule(name="r", tools=["pay"], arguments=arguments)])


@pytest.mark.parametrize("given", [{}, *({"sum": value} for value in ("1", [1], {"a": 5}, None, True, 6, -1))])
def test_what_a_waiving_rule_does_not_allow_is_asked_about(given: dict[str, Any]) -> None:
    """What is absent or of another type, too."""
    assert asking_rule([SMALL, ALWAYS], "pay", given) == ALWAYS


def test_the_digest_is_that_of_canonical_json() -> None:
    """So a program in another language computes the same."""
    arguments: Any = {"b": 1.0, "a": "é"}
    call: dict[str, Any] = {"tenant": "t", "run": RUN, "call_id": "1-1", "tool": "pay", "spec": "d" * 24, "revision": 1}
    canonical = rfc8785.dumps(call | {"arguments": arguments})
    assert digest({"a": "é", "b": 1}) == hashlib.sha256(canonical).hexdigest()


@pytest.mark.parametrize("other", [{"tenant": "u"}, {"call_id": "1-2"}, {"tool": "p"}, {"spec": "e"}, {"revision": 2}])
def test_an_approval_is_about_one_call(other: dict[str, Any]) -> None:
    """Each field counts."""
    assert digest({"sum": 1}, **other) != digest({"sum": 1})


def test_large_integers_keep_all_digits() -> None:
    """Two neighbours that are one double have two digests, wherever they stand."""
    size = 2**53
    assert len({digest({"n": [{"z": size + n, "a": True, "é": None}]}) for n in range(3)}) == 3
    assert digest({"n": size}) == digest({"n": float(size)})
    assert digest({"n": 10**30}) != digest({"n": str(10**30)})
    assert digest({"b": size, "a": 1}) == digest({"a": 1, "b": size})


def test_what_is_executed() -> None:
    """A call that needs no approval, and one that bears the approval of exactly this call."""
    spec, guarded = ToolSpec(name="pay"), ToolSpec(name="pay", requires_approval=True)
    assert is_allowed(call(), spec)
    assert not is_allowed(call(), guarded)
    assert not is_allowed(call(approval_rules=[LARGE]), spec)
    approved = CallApproval(digest=digest({"sum": 500}, revision=2), revision=2)
    assert is_allowed(call(approved), guarded)
    assert is_allowed(call(approved, approval_rules=[LARGE]), spec)
    assert not is_allowed(call(approved, args={"sum": 501}), guarded)
    assert not is_allowed(call(approved.model_copy(update={"revision": 1})), guarded)
