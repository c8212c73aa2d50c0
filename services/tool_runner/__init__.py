"""Takes durable calls, asks the tool services, settles each call once, and keeps the catalogue of tools."""
