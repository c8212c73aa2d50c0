"""The gateway as a server of the Model Context Protocol (docs/mcp.md): its tools, agents and artifacts at `/mcp`."""
