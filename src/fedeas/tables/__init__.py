"""Counts from files and allocations to files."""

from fedeas.tables.formats import Chunk, PathLike
from fedeas.tables.reading import count_chunks, read_counts
from fedeas.tables.writing import allocation_writer, write_allocation, write_counts

__all__ = [
    "Chunk",
    "PathLike",
    "allocation_writer",
    "count_chunks",
    "read_counts",
    "write_allocation",
    "write_counts",
]
