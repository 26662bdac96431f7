"""Figures of the paper and of our results."""
