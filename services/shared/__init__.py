"""What two services or more know about runs and tools: the catalogue, the follower of a run, artifacts, redaction."""
