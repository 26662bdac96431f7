"""Real deployments on loopback for tests, whose nodes can be killed, stopped and started again."""

import os
import shutil
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from waiting import wait_until

from deploy.flower.one_machine import OneMachine, kill_group
from deploy.flower.programs import end
from fedeas.flower.operator import Operator


class Deployment(OneMachine):
    """A deployment that runs."""

    @property
    def operator(self):
        return Operator(home=self.folder)

    def run(self, app, config, show=lambda line: None):
        """Run the app in a folder, by default FedEAS, and wait for its end."""
        return self.operator.run(app, config, show)

    def is_online(self, index):
        return self.clients.states()[index] == "online"

    def restart_node(self, index):
        """Start a node that was stopped or killed, once the SuperLink has noticed that, and wait until it is online."""
        wait_until(lambda: not self.is_online(index))
        self.start_node(index)
        wait_until(lambda: self.is_online(index))

    def stop_node(self, index):
        """Send SIGTERM: the node signs off at the SuperLink."""
        end(self.nodes[index], 60)

    def kill_node(self, index):
        """Kill node and executor: the SuperLink is not told, and counts the node as online for up to a minute."""
        kill_group(self.nodes[index])


def need_nginx():
    """Skip the test where nginx is not installed."""
    if shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.skip("nginx is not installed: apt-get install nginx")


@contextmanager
def deployed(folder, nodes, node_config=None, environment=None, options=()):
    """A deployment that runs during a ``with`` block; its processes have these environment variables, too."""
    need_nginx()
    with patch.dict(os.environ, environment or {}), Deployment(folder, nodes, node_config or {}, options) as deployment:
        yield deployment
