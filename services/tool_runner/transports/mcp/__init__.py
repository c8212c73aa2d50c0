"""Tools of MCP servers: the operator's file (`config`), a connection to each (`server`), their calls (`transport`).

Of all services only these modules know the protocol, by its official SDK. They are imported when there is a file.
"""
