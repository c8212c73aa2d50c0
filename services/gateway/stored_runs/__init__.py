"""What is stored of runs: read one, list a tenant's, mark them as deleted."""
