"""Divide the scarce resources of a process among tenants: slots by shares, CPU by turns."""
