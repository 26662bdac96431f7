"""The paper's numbers, and its tables and figures filled with our results.

`reproduction.reproduce("table1", profile="smoke")` makes the missing runs of a table and returns the table.
"""

from reproduction.reproduction import Places, Reproduction, reproduce

__all__ = ["Places", "Reproduction", "reproduce"]
