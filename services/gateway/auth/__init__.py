"""Who calls: API keys, the file that names them, and what each of them may do."""
