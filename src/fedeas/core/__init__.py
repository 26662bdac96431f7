"""The base that all other packages use: arrays, files, specs, random streams, weight files."""

VERSION = "0.2.0"
"""Of the package; here, so that no module needs to import the package itself."""
