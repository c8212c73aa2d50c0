"""What a run may be made of: agents, their models, tools, plans; and what a key may still spend."""
