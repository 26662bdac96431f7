"""How long does `import fedeas` take?"""

from __future__ import annotations

import subprocess
import sys

from measure import save, seconds


def main() -> None:
    def run(code: str) -> float:
        return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True), repeats=7)

    bare, numpy, fedeas = run("pass"), run("import numpy"), run("import fedeas")
    rows: list[dict[str, object]] = [
        {"import": "numpy", "milliseconds": round((numpy - bare) * 1e3)},
        {"import": "fedeas, numpy included", "milliseconds": round((fedeas - bare) * 1e3)},
    ]
    save("start", "Import time in a fresh process, the interpreter's own start taken off", rows)


if __name__ == "__main__":
    main()
