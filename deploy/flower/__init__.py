"""Run FedEAS on Flower's SuperLink and SuperNodes: keys, nodes with an executor, a deployment on one machine.

Everything here needs ``fedeas[flower]``. What uses parts of Flower that are not public is in `internals`.
"""

import os

# Flower reads these when it is imported. Processes of a deployment talk to each other alone, unless their owner says
# otherwise.
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
