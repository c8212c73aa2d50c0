"""What the gateway answers over HTTP, a module for each noun of its addresses."""
