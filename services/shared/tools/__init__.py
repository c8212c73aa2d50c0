"""What services know of tools: the catalogue, approvals, the built-in tool."""
