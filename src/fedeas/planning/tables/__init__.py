"""Read counts from files and write allocations to files."""

from fedeas.planning.columns import ColumnNames
from fedeas.planning.tables.formats import Chunk
from fedeas.planning.tables.plans import read_allocation
from fedeas.planning.tables.reading import CountTable, read_columns, read_counts
from fedeas.planning.tables.writing import allocation_writer, write_allocation, write_counts

__all__ = [
    "Chunk",
    "ColumnNames",
    "CountTable",
    "allocation_writer",
    "read_allocation",
    "read_columns",
    "read_counts",
    "write_allocation",
    "write_counts",
]
