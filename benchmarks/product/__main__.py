"""(h) What users see: `runwire up`, a model over HTTP, a served tool; beside a bare loop in the same run.

Run: python -m benchmarks.product [--quick | --long] [--only steps,rate,tokens,burst,recovery,memory,growth] [--peers]
     [--sync 1s] [--planners 2]
"""

import argparse
import asyncio
import os
import platform
import time

import uvloop

from benchmarks.product.parts import FULL, LONG, PARTS, QUICK, show


def chosen(text: str) -> tuple[str, ...]:
    """The parts named in `a,b`."""
    parts = tuple(text.split(","))
    if unknown := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"no part is named {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return parts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.product", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_const", dest="effort", const=QUICK, default=FULL)
    effort.add_argument("--long", action="store_const", dest="effort", const=LONG)
    parser.add_argument("--only", type=chosen, default=PARTS)
    parser.add_argument("--peers", action="store_true", help="also measure the peers that are installed in PEERS_HOME")
    parser.add_argument("--sync", choices=("always", "1s"), default="always", help="see `runwire up --help`")
    parser.add_argument("--planners", default="1", help="see `runwire up --help`")
    given = parser.parse_args()
    began = time.monotonic()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load before {load}, sync {given.sync}.")
    print("Medians over the rounds [lowest..highest]. Trust the ratios, not the milliseconds.")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        up_options = ("--sync", given.sync, "--planners", given.planners)
        runner.run(show(given.effort, given.only, up_options, with_peers=given.peers))
    print(f"\nMeasured in {time.monotonic() - began:.0f} s.")
