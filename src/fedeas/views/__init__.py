"""Figures of plans and partitions, and the style of all figures."""
