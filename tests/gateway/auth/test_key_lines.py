"""What a line says of a key, and what no line can say."""

import hashlib
import string
import sys
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.auth.__main__ import main
from services.gateway.auth.caller import DEFAULT_RIGHTS, Caller, Keys
from services.gateway.auth.key_lines import KeyLineInvalid, callers

KEY = "rw_" + "k" * 43
"""The same in each process, since names of tests contain it."""
DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
LINE = f"ann {DIGEST}"


def only(text: str) -> Caller:
    (caller,) = callers(text, "here").values()
    return caller


def test_two_columns_mean_what_they_always_meant() -> None:
    """All but what concerns the deployment, for all users, without limits."""
    assert only(LINE) == Caller(tenant="ann", key_id=DIGEST[:12], rights=DEFAULT_RIGHTS)
    assert frozenset({"run", "approve", "apply"}) == DEFAULT_RIGHTS


def test_each_field_limits_the_key() -> None:
    """In any order, with any white space between them."""
    expected = Caller(
        tenant="ann",
        key_id="ci.main",
        rights=frozenset({"run", "operate"}),
        user_id="a=b@x,y",
        max_runs=3,
        tools=("add", "draw_2"),
        agents=("support",),
        max_tokens_per_day=5_000_000_000,
        max_cost_usd_per_day=2.5,
    )
    fields = ["name=ci.main", "rights=run,operate", "user=a=b@x,y", "max_runs=3", "tools=add,draw_2", "agents=support"]
    fields += ["max_tokens_per_day=5000000000", "max_cost_usd_per_day=2.50"]
    assert only(f"{LINE} {' '.join(fields)}") == expected
    assert only(f"  {LINE}\t {'   '.join(reversed(fields))} ") == expected
    assert only(f"{LINE} rights= tools=") == Caller(tenant="ann", key_id=DIGEST[:12], rights=frozenset(), tools=())


def test_keys_of_a_setting_are_separated_by_commas_that_lists_use_too() -> None:
    """A comma separates keys where a tenant and a digest follow."""
    text = f"{LINE} rights=run,approve tools=a,b,bob {'b' * 64} rights=run, eve {'e' * 64},,\n# no\nzoe {'f' * 64},"
    found = callers(text, "here")
    tools = {caller.tenant: caller.tools for caller in found.values()}
    assert tools == {"ann": ("a", "b"), "bob": None, "eve": None, "zoe": None}


@pytest.mark.parametrize(
    ("line", "where"),
    [
        (f"{LINE} rigths=run", "line 3, column 3"),
        (f"{LINE} name=a run", "line 3, column 4"),
        (f"{LINE} {KEY}", "line 3, column 3"),
        (f"{LINE} =", "line 3, column 3"),
        (f"{LINE} rights=runs", "line 3, rights"),
        (f"{LINE} rights=all", "line 3, rights"),
        (f"{LINE} rights=run rights=approve", "line 3, rights"),
        (f"{LINE} user=", "line 3, user"),
        (f"{LINE} user={'x' * 201}", "line 3, user"),
        (f"{LINE} user=a\x00", "line 3, user"),
        (f"{LINE} user=amax_runs=1", "line 3, user"),
        (f"{LINE} max_runs=0", "line 3, max_runs"),
        (f"{LINE} max_runs=1e3", "line 3, max_runs"),
        (f"{LINE} max_runs=\u0663", "line 3, max_runs"),
        (f"{LINE} max_tokens_per_day=0", "line 3, max_tokens_per_day"),
        (f"{LINE} max_tokens_per_day={'9' * 16}", "line 3, max_tokens_per_day"),
        (f"{LINE} max_cost_usd_per_day=0.000000", "line 3, max_cost_usd_per_day"),
        (f"{LINE} max_cost_usd_per_day=nan", "line 3, max_cost_usd_per_day"),
        (f"{LINE} tools=a,,b", "line 3, tools"),
        (f"{LINE} tools=*", "line 3, tools"),
        (f"{LINE} agents=", "line 3, agents"),
        (f"{LINE} agents=a.b", "line 3, agents"),
        (f"{LINE} name={KEY}{KEY}", "line 3, name"),
        (f"ann {DIGEST[:-1]}", "line 3: the second column"),
        (f"ann {DIGEST.upper()}", "line 3: the second column"),
        (f"ann  rights=run {DIGEST}", "line 3: the second column"),
        (KEY, "line 3"),
        (f"Ann {DIGEST}", "line 3: does not begin"),
        (f"ann.x {DIGEST}", "line 3: does not begin"),
        (f"{LINE}\n{LINE}", "line 4: its key stands in line 3 too"),
        (f"{LINE} name=a\nann {'0' * 64} name=a", "line 4: its name stands in line 3 too"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_not_quoted(line: str, where: str) -> None:
    """A misspelt right must not become the right to everything, and a key in the wrong place must not reach a log."""
    with pytest.raises(KeyLineInvalid) as refusal:
        callers(f"# keys\n\n{line}", "RUNWIRE_API_KEYS_FILE")
    assert str(refusal.value).startswith(f"RUNWIRE_API_KEYS_FILE, {where}")
    assert KEY not in str(refusal.value)
    assert DIGEST[:-1] not in str(refusal.value)
    assert str(refusal.value).isprintable()


@given(st.integers(0, 400), st.sampled_from(string.printable + "\x00\u2028é"))
def test_an_altered_line_is_refused_or_keeps_its_limits(place: int, character: str) -> None:
    """Whichever character changes: no limit of the key is lost."""
    line = list(f"{LINE} name=ci rights=run user=eve max_runs=1 tools=add agents=support max_tokens_per_day=1")
    line[place % len(line)] = character
    try:
        caller = Keys(callers("".join(line), "here")).find(KEY)
    except KeyLineInvalid:
        return
    if caller is None or "#" in line:
        return
    assert caller.rights <= {"run"}
    assert None not in (caller.user_id, caller.max_runs, caller.tools, caller.agents, caller.budget)


def test_lines_are_made_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same fields, checked before anything is printed."""
    command = ["auth", "ann"]
    options = ["--name", "ci", "--rights", "run", "--user", "eve", "--max-runs", "2", "--tools", "a,b", "--agents", "x"]
    monkeypatch.setattr(sys, "argv", [*command, *options])
    main()
    key, line = (text.partition(": ")[2] for text in capsys.readouterr().out.splitlines())
    wanted = Caller(tenant="ann", key_id="ci", rights=frozenset({"run"}), user_id="eve", max_runs=2, agents=("x",))
    assert Keys(callers(line, "here")).find(key) == replace(wanted, tools=("a", "b"))
    for wrong in (["--rights", "runs"], ["--user", "a b"], ["--max-runs", "0"], ["--name", "a b"]):
        monkeypatch.setattr(sys, "argv", [*command, *wrong])
        with pytest.raises(SystemExit, match="2"):
            main()
        printed = capsys.readouterr()
        assert printed.out == ""
        assert wrong[0].removeprefix("--").replace("-", "_") in printed.err
