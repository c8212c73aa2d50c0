"""Sessions and tasks over HTTP."""
