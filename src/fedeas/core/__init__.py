"""What everything stands on: arrays, files, specs, random streams, weight files."""
