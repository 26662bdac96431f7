"""The same federation with its clients as Flower nodes."""
