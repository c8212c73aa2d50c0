"""What several services know about runs and tools: the tool catalogue, the run follower, artifacts, redaction."""
