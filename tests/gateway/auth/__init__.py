"""API keys: their lines, their file, what each may do."""
