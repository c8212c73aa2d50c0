"""Who the tests of identities are: every kind of user, and what is its own."""

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.wire.subject import LISTENER, SERVICES, TOOL
from runwire.identities import Identities

RUN, OTHER_RUN = "0" * 32, "1" * 32


@dataclass(frozen=True)
class User:
    """`role`: as the channels name it. `own`: parameter of a subject -> the values that are its own; missing: any."""

    name: str
    role: str
    own: Mapping[str, tuple[str, ...]]

    def owns(self, values: Mapping[str, str]) -> bool:
        """Whether a subject with these values belongs to it."""
        return all(values[name] in own for name, own in self.own.items() if name in values)


def _tool(user: str, *names: str) -> User:
    return User(user, TOOL, {"tool": names, "service": names})


USERS = {
    user.name: user
    for user in (
        *(User(name, name, {"service": (f"runwire-{name}",)}) for name in SERVICES),
        *(User(name, name, {}) for name in ("provisioner", "operator", "tools_operator", "reloader")),
        User("local", TOOL, {}),
        _tool("tool_weather", "weather"),
        _tool("tool_geo", "geo"),
        _tool("tools_sun.moon", "sun", "moon"),
        User("listener_acme", LISTENER, {"tenant": ("acme",)}),
        User(f"run_other_{RUN}", LISTENER, {"tenant": ("other",), "run": (RUN,), "session_key": ()}),
    )
}


def add_tools_and_listeners(known: Identities) -> None:
    known.add_tools("weather")
    known.add_tools("geo")
    known.add_tools("sun", "moon")
    known.add_listener("acme")
    known.add_listener("other", RUN)
