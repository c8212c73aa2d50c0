"""One request to the model: what precedes it, what its reply leads to, what follows a failure. Pure."""
