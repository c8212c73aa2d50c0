"""What all messages stand on: base with limits, names with ids, records, faults, and the table of subjects."""
