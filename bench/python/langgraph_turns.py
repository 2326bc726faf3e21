"""Turns of LangGraph's prebuilt agent whose model and tool are in this process: `… TURNS`."""

import os
import sys
import warnings

os.environ["LANGSMITH_TRACING"] = "false"
warnings.filterwarnings("ignore")

from importlib.metadata import version

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent

from contest import serve

TURNS = int(sys.argv[1])
asked = 0


class Script(BaseChatModel):
    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        global asked
        turn, asked = asked % (TURNS + 1), asked + 1
        message = AIMessage(content="done")
        if turn < TURNS:
            call = {"name": "add", "args": {"a": turn, "b": 1}, "id": f"call_{turn}"}
            message = AIMessage(content="", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=message)])


@tool
def add(a: int, b: int) -> int:
    """Add two integers"""
    return a + b


agent = create_react_agent(Script(), tools=[add], prompt="You add.")


def run():
    asks = {"messages": [("user", "add numbers")]}
    result = agent.invoke(asks, {"recursion_limit": 2 * TURNS + 10})
    assert result["messages"][-1].content == "done"


serve(f"langgraph {version('langgraph')}", lambda: [run() for _ in range(max(1, 200 // TURNS))])
