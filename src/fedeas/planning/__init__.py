"""From label counts to an allocation: scores, policies, tables. Needs no torch."""
