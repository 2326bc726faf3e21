"""A long run of LangGraph's prebuilt agent with its PostgreSQL checkpointer: `… URL TURNS`.

Prints the seconds of a turn, and the bytes that the turns 10 and 200 left in the rows of its tables.
"""

import json
import os
import sys
import time
import warnings

os.environ["LANGSMITH_TRACING"] = "false"
warnings.filterwarnings("ignore")

import psycopg
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.prebuilt import create_react_agent

URL, TURNS = sys.argv[1], int(sys.argv[2])
TABLES = ["checkpoints", "checkpoint_blobs", "checkpoint_writes"]
asked = 0
sizes = {}


def size():
    parts = [f"(SELECT coalesce(sum(pg_column_size(t.*)), 0) FROM {name} t)" for name in TABLES]
    with psycopg.connect(URL) as connection:
        return connection.execute("SELECT " + " + ".join(parts)).fetchone()[0]


class Script(BaseChatModel):
    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        global asked
        turn, asked = asked, asked + 1
        message = AIMessage(content="done")
        if turn < TURNS:
            call = {"name": "add", "args": {"a": turn, "b": 1}, "id": f"call_{turn}"}
            message = AIMessage(content="", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def add(a: int, b: int) -> int:
    """Add two integers"""
    return a + b


with PostgresSaver.from_conn_string(URL) as saver:
    saver.setup()
    agent = create_react_agent(Script(), tools=[add], prompt="You add.", checkpointer=saver)
    config = {"configurable": {"thread_id": "1"}, "recursion_limit": 2 * TURNS + 10}
    measuring = 0.0
    began = time.perf_counter()
    steps = agent.stream({"messages": [("user", "add numbers")]}, config, stream_mode="updates")
    for step in steps:
        # One update of the model and one of the tool make a turn.
        if "tools" in step and asked in (9, 10, 199, 200):
            before = time.perf_counter()
            sizes[asked] = size()
            measuring += time.perf_counter() - before
    took = time.perf_counter() - began - measuring

print(
    json.dumps(
        {
            "seconds_a_turn": took / TURNS,
            "bytes_at_10": sizes[10] - sizes[9],
            "bytes_at_200": sizes[200] - sizes[199],
        }
    )
)
