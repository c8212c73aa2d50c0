"""Tests of the gateway as an MCP server."""
