"""What the store does with an artifact: put, get, head, list, delete."""
