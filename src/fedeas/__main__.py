"""Run the command line with ``python -m fedeas``."""

from fedeas.cli import main

main()
