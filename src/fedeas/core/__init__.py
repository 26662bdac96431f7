"""The base that all other packages use: arrays, files, specs, random streams, weight files."""
