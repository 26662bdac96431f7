"""The paper's study: its numbers, and its tables and figures filled with our results.

``python -m reproduction table1`` makes the missing runs of a table and shows it.
"""
