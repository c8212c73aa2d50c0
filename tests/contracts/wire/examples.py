"""A name of each kind that subjects and keys contain."""

import re

from contracts.wire.keys import ENTRIES
from contracts.wire.subject import PARAMETERS, Subject
from contracts.wire.subjects import SUBJECTS

RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"
TABLE = (*SUBJECTS, *ENTRIES)
EXAMPLES = {
    **dict.fromkeys(PARAMETERS, RUN),
    "digest": "0" * 24,
    "entry": f"{1_700_000_000_000:012x}{RUN}",
    "session_entry": f"{1_700_000_000_000:012x}{RUN}",
    "kept_in": "KV_runs",
    "model": "openai/gpt-4o=2Emini",
    "sequence": "7",
    "day": "20260131",
    "run_or_none": "-",
    "stream": "INBOX",
    "tenant": "acme",
    "verb": "PING",
}


def parameters_of(row: Subject) -> list[str]:
    return re.findall(r"\{(\w+)\}", row.address)


def example(row: Subject) -> str:
    return row(*(EXAMPLES[parameter] for parameter in parameters_of(row)))
