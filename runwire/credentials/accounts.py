"""The accounts of NATS in the server's own language, from rights and passwords. Pure.

The three accounts are joined by six lines, whatever the number of tools and tenants: calls and discovery go from CORE
to TOOLS, answers come back; live records and the last record of a log go to LISTENERS.
"""

import json
from collections.abc import Mapping

from contracts.rights import Rights

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
      {{ service: "$JS.API.DIRECT.GET.RUNS.emit.*.*.log", response: singleton, accounts: [LISTENERS] }}
    ]
    imports: [
      {{ stream: {{ account: TOOLS, subject: "answer.>" }} }}
      {{ stream: {{ account: TOOLS, subject: "hello.>" }} }}
    ]
  }}
  TOOLS {{
    limits {{ {limits} }}
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
    limits {{ {limits} }}
    users: [
{LISTENERS}    ]
    imports: [
      {{ stream: {{ account: CORE, subject: "run.>" }} }}
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
MAX_CONNECTIONS, MAX_SUBSCRIPTIONS = 4096, 65_536
"""Of the accounts TOOLS and LISTENERS: connections of the account, and subscriptions of one connection. So the programs
there cannot use up the server, which the services use too."""
_LIMITS = f"max_connections: {MAX_CONNECTIONS}, max_subscriptions: {MAX_SUBSCRIPTIONS}, max_payload: 8MB"


def accounts_block(rights: Mapping[str, Rights], passwords: Mapping[str, str]) -> str:
    """Return the contents of `accounts.conf`: accounts, users with passwords and rights, and what accounts share."""
    users = {"CORE": "", "TOOLS": "", "LISTENERS": "", "SYS": ""}
    for user, its_rights in rights.items():
        users[its_rights.account] += _user(user, passwords[user], its_rights)
    return _ACCOUNTS.format(limits=_LIMITS, **users)


def _user(name: str, password: str, rights: Rights) -> str:
    lists = (
        f"        {verb}: [\n" + "".join(f"          {json.dumps(subject)}\n" for subject in subjects) + "        ]\n"
        for verb, subjects in (("publish", rights.publish), ("subscribe", rights.subscribe))
    )
    head = f"      {{ user: {json.dumps(name)}, password: {json.dumps(password)}, permissions: {{\n"
    return head + "".join(lists) + "      } }\n"
