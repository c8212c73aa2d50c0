"""The health check of a container: exit 0 when the service on this port says that it is ready.

Usage: python -I -S healthy.py PORT. It runs every few seconds, so it imports little: a client of HTTP costs thrice as
much.
"""

import socket
import sys

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=3) as connection:
    connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
    sys.exit(connection.recv(12)[9:] != b"200")
