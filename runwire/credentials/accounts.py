"""The accounts of NATS in the server's own language, from rights and passwords. Pure.

The three accounts are joined by seven lines, whatever the number of tools and tenants: calls and discovery go from CORE
to TOOLS, answers come back; live records and the last record of a log go to LISTENERS.
"""

import json
from collections.abc import Mapping

from contracts.wire.rights import Rights

_ACCOUNTS = """\
# Written by `runwire credentials`; changes are overwritten.
accounts {{
  CORE {{
    jetstream: enabled
    users: [
{CORE}    ]
    exports: [
      {{ stream: "tool.>", accounts: [TOOLS] }}
      {{ stream: "discover.>", accounts: [TOOLS] }}
      {{ stream: "run.>", accounts: [LISTENERS] }}
      {{ stream: "session.>", accounts: [LISTENERS] }}
      {{ service: "$JS.API.DIRECT.GET.RUNS.emit.*.*.log", response: singleton, accounts: [LISTENERS] }}
    ]
    imports: [
      {{ stream: {{ account: TOOLS, subject: "answer.>" }} }}
      {{ stream: {{ account: TOOLS, subject: "hello.>" }} }}
    ]
  }}
  TOOLS {{
    limits {{ {tools_limits} }}
    users: [
{TOOLS}    ]
    exports: [
      {{ stream: "answer.>", accounts: [CORE] }}
      {{ stream: "hello.>", accounts: [CORE] }}
    ]
    imports: [
      {{ stream: {{ account: CORE, subject: "tool.>" }} }}
      {{ stream: {{ account: CORE, subject: "discover.>" }}, to: "$SRV.>" }}
    ]
  }}
  LISTENERS {{
    limits {{ {listeners_limits} }}
    users: [
{LISTENERS}    ]
    imports: [
      {{ stream: {{ account: CORE, subject: "run.>" }} }}
      {{ stream: {{ account: CORE, subject: "session.>" }} }}
      {{ service: {{ account: CORE, subject: "$JS.API.DIRECT.GET.RUNS.emit.*.*.log" }} }}
    ]
  }}
  SYS {{
    users: [
{SYS}    ]
  }}
}}
system_account: SYS
"""
TOOLS_LIMITS: Mapping[str, int | str] = {"max_connections": 1024, "max_subscriptions": 4096, "max_payload": "8MB"}
LISTENERS_LIMITS: Mapping[str, int | str] = {"max_connections": 4096, "max_subscriptions": 1024, "max_payload": "64KB"}
"""Connections of the account, subscriptions of one connection, and the largest message that it may send. So the
programs there cannot use up the server, which the services use too. A tool has about twenty subscriptions."""


def accounts_block(rights: Mapping[str, Rights], passwords: Mapping[str, str]) -> str:
    """Return the contents of `accounts.conf`: accounts, users with passwords and rights, and what accounts share."""
    users = {"CORE": "", "TOOLS": "", "LISTENERS": "", "SYS": ""}
    for user, its_rights in rights.items():
        lists = ""
        for verb, subjects in (("publish", its_rights.publish), ("subscribe", its_rights.subscribe)):
            lines = "".join(f"          {json.dumps(each)}\n" for each in subjects)
            lists += f"        {verb}: [\n{lines}        ]\n"
        head = f"      {{ user: {json.dumps(user)}, password: {json.dumps(passwords[user])}, permissions: {{\n"
        users[its_rights.account] += f"{head}{lists}      }} }}\n"
    tools, listeners = (
        ", ".join(f"{name}: {value}" for name, value in limits.items()) for limits in (TOOLS_LIMITS, LISTENERS_LIMITS)
    )
    return _ACCOUNTS.format(tools_limits=tools, listeners_limits=listeners, **users)
