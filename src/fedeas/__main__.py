"""``python -m fedeas`` is the command line."""

from fedeas.cli import main

main()
