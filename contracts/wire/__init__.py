"""What all messages stand on: limits, names and ids, records, faults, and the tables of subjects, keys and rights."""
