"""Assembling artifact streams: `assembler` reads the pieces of one back, `buffer` holds them."""
