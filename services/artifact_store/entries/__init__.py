"""What the store knows: its entries in the KV bucket."""
