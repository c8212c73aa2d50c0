"""Serve the tools over NATS: `python -m services.tables`; `python -m services.tables migrate` prepares the database."""

import os
import sys
import threading

from runwire.errors import ToolError
from runwire.serving import run
from services.tables.csv_tools import tools_of
from services.tables.database import configured


def main() -> None:
    """Serve until SIGTERM or SIGINT, or migrate and end."""
    database = configured()
    if sys.argv[1:] == ["migrate"]:
        try:
            database.migrate()
        except ToolError as error:
            raise SystemExit(error.reason) from None
        return
    stop = threading.Event()
    threading.Thread(target=database.watch, args=(stop,), daemon=True).start()
    run(tools_of(database), health_file=os.environ.get("RUNWIRE_HEALTH_FILE"), check=lambda: database.problem)
    stop.set()
    database.close()


if __name__ == "__main__":
    main()
