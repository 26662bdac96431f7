"""A Flower app that says in which process it runs, and that can fail."""

import json
import os
import time
from pathlib import Path

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

LIMIT = 600
"""Seconds that only a hang takes."""

server = ServerApp()
client = ClientApp()


@client.query("who")
def who(message, context):
    about = {
        "pid": os.getpid(),
        "node config": json.dumps(context.node_config),
        "node id": context.node_id,
    }
    return Message(RecordDict({"about": ConfigRecord(about)}), reply_to=message)


@client.query("fail")
def fail(message, context):
    raise ValueError("on purpose")


@server.main()
def main(grid, context):
    steps = context.run_config["steps"].split()
    done = [{"step": step, **ask(grid, f"query.{step}")} for step in steps if step != "give-up"]
    Path(context.run_config["out"]).write_text(json.dumps(done))
    if "give-up" in steps:
        raise RuntimeError("given up on purpose")


def ask(grid, kind):
    """Ask all nodes."""
    began = time.monotonic()
    messages = [Message(RecordDict(), dst_node_id=node, message_type=kind) for node in grid.get_node_ids()]
    open_ids, answers = set(grid.push_messages(messages)), []
    while open_ids and time.monotonic() - began < LIMIT:
        time.sleep(0.1)
        for reply in grid.pull_messages(open_ids):
            open_ids.discard(reply.metadata.reply_to_message_id)
            answers.append({"error": reply.error.reason} if reply.has_error() else dict(reply.content["about"]))
    return {"answers": answers}
