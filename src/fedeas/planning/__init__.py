"""Compute allocations from label counts: scores, policies, tables. Needs no torch."""
