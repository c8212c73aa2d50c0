"""A caller: the tenant, and what its API key may do there.

Rule 1: reading needs a key and no right. What changes something needs the one right that its route names.
Rule 2: a pinned caller sees what belongs to its user. The rest does not exist for it, in the same bytes as what never
did.
Rule 3: a request that a key does not allow is refused. What a request leaves out is filled in.
Rule 4: a key changes only runs that could be its own: their tools and agent are among its tools and agents, and a key
with a budget changes none that another key pays for. `check_change` decides that, for every route.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from contracts.runs.requests import KeyBudget, RunInput, RunRequested
from contracts.wire import subjects
from contracts.wire.names import run_id_for_key
from services.gateway.errors import NotAllowed, RightMissing

Right = Literal["run", "approve", "apply", "operate"]
ALL_RIGHTS: frozenset[Right] = frozenset(get_args(Right))
DEFAULT_RIGHTS: frozenset[Right] = frozenset({"run", "approve", "apply"})
"""Those of a key whose line names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request. None in a limit: there is no such limit."""

    tenant: str
    key_id: str = ""
    """Of its API key; empty: a caller of a gateway without keys."""
    digest: str = field(default="", repr=False, compare=False)
    """Of its API key: another key of this name is another caller."""
    rights: frozenset[Right] = DEFAULT_RIGHTS
    user_id: str | None = None
    """The user that the key is pinned to."""
    role: str = "user"
    """What pages call the user of the key: which help it is shown, and what the model knows of it."""
    max_runs: int | None = None
    """Open runs at once of this key."""
    max_tokens_per_day: int | None = None
    """Of all runs that this key starts on a day, by UTC."""
    max_cost_usd_per_day: float | None = None
    tools: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    ends_at: int | None = field(default=None, compare=False)
    """Unix ms, of a request with a ticket or a login in place of the key (`auth.guard`)."""

    @property
    def budget(self) -> KeyBudget | None:
        """What the runs of a day may spend together; None: no limit."""
        if self.max_tokens_per_day is None and self.max_cost_usd_per_day is None:
            return None
        return KeyBudget(max_tokens=self.max_tokens_per_day, max_cost_usd=self.max_cost_usd_per_day)

    def require(self, right: Right) -> None:
        """Raise RightMissing unless the key has the right."""
        if right not in self.rights:
            raise RightMissing(right)

    def may_see(self, user_id: str | None) -> bool:
        """Return whether the caller may see what belongs to this user; None: it belongs to nobody."""
        return self.user_id is None or self.user_id == user_id

    @property
    def is_limited(self) -> bool:
        """Whether there may be runs that the key must not change."""
        return self.tools is not None or self.agents is not None or self.budget is not None

    def check_change(self, run: RunRequested | None) -> None:
        """Raise NotAllowed unless the key may change this run, also by what it says to it. None: it never began."""
        if run is None:
            return
        if self.agents is not None and run.agent not in self.agents:
            raise NotAllowed("agent", f"the run's agent is {run.agent}; this key may ask: {', '.join(self.agents)}")
        lists = [set(tools) for tools in (run.tools, run.key_tools) if tools is not None]
        if self.tools is not None and not (lists and set.intersection(*lists) <= set(self.tools)):
            raise NotAllowed("tools", f"the run may use others than this key: {', '.join(self.tools) or 'none'}")
        if self.budget is not None and run.key_id != self.key_id:
            raise NotAllowed("run_id", "another key pays for the run, and this key has a budget of its own")

    def check_tool(self, name: str, field: str) -> None:
        """Raise NotAllowed unless the key may use this tool. `field`: what names it in the request."""
        if self.tools is not None and name not in self.tools:
            raise NotAllowed(field, f"this key may name: {', '.join(self.tools) or 'none'}")

    def check_read(self, tool: str) -> None:
        """Raise NotAllowed unless the key may use this tool without a run, and so without an agent."""
        self.check_tool(tool, "tool")
        if self.agents is not None and self.tools is None:
            reason = "its line names agents and no tools; with tools= it may use those without an agent"
            raise NotAllowed("tool", f"this key may use the tools of its agents only: {reason}")

    def run_id_for_key(self, key: str) -> str:
        """Derive the id of a run from an idempotency key. Keys of one user say nothing about another's."""
        # A key has no line break, so no key of another caller gives the same text.
        return run_id_for_key(self.tenant, key if self.user_id is None else f"{self.user_id}\n{key}")

    def request_fields(self, run_input: RunInput) -> dict[str, Any]:
        """Return the fields of RunRequested that the key decides or fills in. Raises NotAllowed."""
        agent = run_input.agent
        if self.user_id is not None and run_input.user_id not in {None, self.user_id}:
            raise NotAllowed("user_id", "this key belongs to another user; leave it out")
        if self.agents is not None and agent not in self.agents:
            if "agent" in run_input.model_fields_set:
                raise NotAllowed("agent", f"this key may name: {', '.join(self.agents)}")
            agent = self.agents[0]
        for number, name in enumerate(run_input.tools or ()):
            self.check_tool(name, f"tools.{number}")
        return {
            "tenant": self.tenant,
            "key_id": self.key_id,
            "user_id": self.user_id or run_input.user_id,
            "is_user_pinned": self.user_id is not None,
            "role": self.role if run_input.page is not None else "",
            "agent": agent,
            "key_budget": self.budget,
            "key_tools": None if self.tools is None else list(self.tools),
        }


KEYLESS = Caller(tenant=subjects.DEFAULT_TENANT, rights=ALL_RIGHTS)
"""Every caller of a gateway without keys, which listens on loopback only."""


class Keys:
    """Callers by their keys. A look-up costs the same however many there are, and its time says nothing about them.

    A plain look-up would compare a digest that a caller chose with stored ones, and its time could say how much of
    them agrees. So both are hashed with a secret of this process first: what is compared then, nobody outside knows.
    """

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        """`callers`: by the SHA-256 of their keys, in hexadecimal digits."""
        self._secret = secrets.token_bytes(32)
        self._callers = {self._hidden(digest): caller for digest, caller in callers.items()}
        self._all = frozenset((caller, caller.digest) for caller in callers.values())
        self._named = {(caller.tenant, caller.key_id): caller for caller in callers.values()}

    def __len__(self) -> int:
        return len(self._callers)

    def __contains__(self, caller: Caller) -> bool:
        return (caller, caller.digest) in self._all

    def find(self, key: str) -> Caller | None:
        """Return the caller who shows this key."""
        return self._callers.get(self._hidden(digest_of(key)))

    def named(self, tenant: str, key_id: str) -> Caller | None:
        """Return the caller whose key has this name."""
        return self._named.get((tenant, key_id))

    def _hidden(self, digest: str) -> bytes:
        return hmac.digest(self._secret, digest.encode(), "sha256")


def digest_of(key: str) -> str:
    """Return what is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()
