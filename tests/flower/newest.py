"""Print the newest release of each of Flower's two newest minor versions, as the package index lists them."""

import re
import subprocess
import sys

MINORS = 2


def main():
    command = [sys.executable, "-m", "pip", "index", "versions", "flwr"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    newest = {}
    for version in re.search(r"Available versions: (.*)", listed)[1].split(", "):  # the newest first
        newest.setdefault(version.rpartition(".")[0], version)
    print(*list(newest.values())[:MINORS])


if __name__ == "__main__":
    main()
