"""The log of the whole package; whoever uses it decides what is shown."""

from __future__ import annotations

import logging

log = logging.getLogger("fedeas")
