"""Who calls, by API key, ticket or login; the lines that name keys; and what each key may do."""
