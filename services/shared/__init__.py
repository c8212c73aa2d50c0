"""What several services know: sessions, runs and how to follow them, tools, artifacts, images, redaction, budgets."""
