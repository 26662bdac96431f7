"""The app in `app/` is for Flower to load, not for pytest."""

collect_ignore = ["app"]
