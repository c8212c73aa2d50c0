"""The health check of a container: exit 0 when the service on this port says that it is ready.

Usage: python healthy.py PORT.
"""

import sys
import urllib.request

with urllib.request.urlopen(f"http://127.0.0.1:{int(sys.argv[1])}/readyz", timeout=3) as answer:  # noqa: S310, loopback
    sys.exit(0 if answer.status == 200 else 1)  # noqa: PLR2004, OK
