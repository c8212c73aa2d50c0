"""What several services know: sessions, runs and how to follow them, the tool catalogue, artifacts, redaction."""
