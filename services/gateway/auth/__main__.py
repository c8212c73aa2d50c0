"""Make an API key: `python -m services.gateway.auth TENANT [--name ..] [--rights ..] [--user ..] …`."""

import argparse
import sys

from contracts.wire.names import InvalidName

from .key_lines import KeyLineInvalid, new_key

_OPTIONS = {
    "name": "its id in logs and requests; else the first 12 digits of its SHA-256",
    "rights": "some of run,approve,apply,operate; else run,approve,apply; empty: reading only",
    "user": "the one user whose runs and sessions it sees",
    "role": "of its user, on pages; else `user`",
    "max_runs": "runs of this key at once",
    "tools": "names of the tools that its runs may use, separated by commas",
    "agents": "names of the agents that it may ask, separated by commas; a request without an agent gets the first",
    "max_tokens_per_day": "tokens of all runs that it starts on a day, by UTC",
    "max_cost_usd_per_day": "money that they cost together, in dollars",
}


def main() -> None:
    """Print a new key, and its line for the gateway."""
    parser = argparse.ArgumentParser(prog="python -m services.gateway.auth", description="Make an API key.")
    parser.add_argument("tenant")
    for name, text in _OPTIONS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="..", help=text)
    given = vars(parser.parse_args())
    tenant = given.pop("tenant")
    try:
        key, line = new_key(tenant, {name: value for name, value in given.items() if value is not None})
    except (InvalidName, KeyLineInvalid) as error:
        parser.error(str(error))
    sys.stdout.write(f"key, for the caller: {key}\nline, for RUNWIRE_API_KEYS_FILE: {line}\n")


if __name__ == "__main__":
    main()
