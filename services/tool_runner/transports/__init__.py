"""How tools are reached: what the machine of a call needs of a transport (`base`), its driver, and each transport."""
