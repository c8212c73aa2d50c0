"""What services know of tools: the catalogue, calls that only read, approvals, the built-in tools, names."""
