"""Event streams over HTTP."""
