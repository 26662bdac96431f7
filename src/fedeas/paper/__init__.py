"""The paper: what it prints, the partitions behind it, and our numbers beside its own."""
