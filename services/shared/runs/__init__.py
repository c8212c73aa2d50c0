"""What several services know of runs: causes, status, what one waits for, how to follow it, pages, limits of plans."""
