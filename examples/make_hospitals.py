"""Three hospitals with skewed digits: images in folders of hospital and class, and a table of how many each holds."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

SHARES = {  # of the digits 0 to 9 at each hospital, in tenths
    "Ulm": [9, 8, 7, 1, 0, 0, 1, 1, 0, 1],
    "Bonn": [0, 1, 2, 8, 9, 8, 1, 0, 1, 0],
    "Kiel": [1, 1, 1, 1, 1, 2, 8, 9, 9, 9],
}

digits = load_digits()
with Path("hospitals.csv").open("w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["hospital", *range(10)])
    starts = np.zeros(10, dtype=int)  # no image goes to two hospitals
    for hospital, shares in SHARES.items():
        counts = [share * 15 for share in shares]
        table.writerow([hospital, *counts])
        for digit, count in enumerate(counts):
            folder = Path("images", hospital, str(digit))
            folder.mkdir(parents=True, exist_ok=True)
            chosen = np.flatnonzero(digits.target == digit)[starts[digit] : starts[digit] + count]
            for number, image in enumerate(digits.images[chosen]):
                Image.fromarray((image * 15.9).astype(np.uint8)).save(folder / f"{number}.png")
        starts += counts
