"""Real deployments on loopback for tests, whose nodes can be killed, stopped and started again."""

import os
from contextlib import contextmanager
from unittest.mock import patch

from deploy.flower import processes
from deploy.flower.loopback import Loopback
from deploy.flower.operator import run_app


class Deployment(Loopback):
    """A deployment that runs."""

    def up(self, nodes, node_config, options=()):
        """Start everything; the options are kept for nodes that are started again."""
        self.options = options
        super().up(nodes, node_config, options)

    def run(self, app, config, show):
        """Run the app in a folder, by default FedEAS, and wait for its end."""
        return run_app(self.superlink, app, config, show)

    def start_node(self, index, *options):
        """Start a node that was stopped or killed, and wait until it is online with its old id."""
        before = self.superlink.nodes()
        self._start_node(index, [*options, *self.options])
        self._await_node(index, before)

    def stop_node(self, index):
        """Send SIGTERM: the node signs off at the SuperLink, and its current message fails at once."""
        processes.end([self.state.nodes[index].process])

    def kill_node(self, index):
        """Kill node and executor: the SuperLink is not told, and counts the node as online for up to a minute."""
        processes.kill_group(self.state.nodes[index].process)


@contextmanager
def deployed(folder, nodes, node_config=None, environment=None, options=()):
    """A deployment that runs during a ``with`` block; its processes have these environment variables, too."""
    deployment = Deployment(folder)
    with patch.dict(os.environ, environment or {}):
        deployment.up(nodes, node_config or {}, options)
        try:
            yield deployment
        finally:
            deployment.down()
