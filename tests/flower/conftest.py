"""The app in `gated/` is for Flower to load, not for pytest."""

collect_ignore = ["gated"]
