"""Turns of a pydantic-ai agent whose model and tool are in this process: `… TURNS`."""

import asyncio
import sys

import pydantic_ai
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

from contest import serve

TURNS = int(sys.argv[1])
asked = 0
# Otherwise the model estimates the tokens of the whole conversation with every call.
usage = RequestUsage(input_tokens=10, output_tokens=5)


def model(messages, info):
    global asked
    turn, asked = asked % (TURNS + 1), asked + 1
    if turn < TURNS:
        call = ToolCallPart("add", {"a": turn, "b": 1}, tool_call_id=f"call_{turn}")
        return ModelResponse(parts=[call], usage=usage)
    return ModelResponse(parts=[TextPart("done")], usage=usage)


agent = Agent(FunctionModel(model), instructions="You add.")


@agent.tool_plain
def add(a: int, b: int) -> int:
    """Add two integers"""
    return a + b


loop = asyncio.new_event_loop()


def run():
    limits = UsageLimits(request_limit=None)
    result = loop.run_until_complete(agent.run("add numbers", usage_limits=limits))
    assert result.output == "done"


serve(f"pydantic-ai {pydantic_ai.__version__}", lambda: [run() for _ in range(max(1, 200 // TURNS))])
