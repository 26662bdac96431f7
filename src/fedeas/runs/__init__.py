"""Run directories and the accuracy that they record. Needs no torch."""
