"""What runs have spent, alone and for their API key."""
