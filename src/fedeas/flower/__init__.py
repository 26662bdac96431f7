"""Run a federation with its clients as Flower nodes."""
