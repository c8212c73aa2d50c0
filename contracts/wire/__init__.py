"""What all messages stand on: base, ids, names, limits, records, faults, and the table of subjects."""
