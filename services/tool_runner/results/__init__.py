"""What a tool has answered: its forms, checks, what the model may see of it, and the outcome."""
