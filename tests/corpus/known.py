"""Differences that have a reason. What loses text, calls or tokens can have none."""

from dataclasses import dataclass
from typing import Callable

# Never explained where there was something, whatever the lists say.
LOSSES = {"text", "calls", "input", "output", "sent text", "sent calls", "sent results", "only theirs reads it", "not sent"}


@dataclass
class Known:
    reason: str
    covers: Callable


# As it has to be.
KNOWN = [
    Known(
        "`reasoning` goes back to OpenRouter alone: others refuse fields that they do not know",
        lambda exchange, what, came, read: what == "sent reasoning" and "openrouter" not in exchange["host"],
    ),
    Known(
        "thinking without a signature does not go back: Bedrock takes none",
        lambda exchange, what, came, read: what == "sent block order or content"
        and [block for block in came if not is_unsigned(block)] == read,
    ),
    Known(
        "a failure that holds the malformed call the model wrote is an answer, which is asked for again",
        lambda exchange, what, came, read: what == "only ours reads it"
        and read["stop"] == "malformed"
        and b"tool_use_failed" in exchange["bytes"],
    ),
    Known(
        "an answer that says nothing goes back with words in its place, which endpoints demand",
        lambda exchange, what, came, read: what == "sent text" and not came,
    ),
    Known(
        "a preview of Gemini counted thoughts among those of the answer, too: counted twice rather than not at all",
        lambda exchange, what, came, read: what == "total" and "preview" in exchange["model"] and came < read,
    ),
]

# Not yet as it has to be, and said aloud.
PENDING = []


def is_unsigned(block):
    return "signature" not in block.get("reasoningContent", {}).get("reasoningText", {"signature": ""})


def reason_for(exchange, what, came, read):
    """Returns why a difference is let pass; `None` where it is not."""
    if what in LOSSES and came:
        return None
    for mark, known in (("", KNOWN), ("NOT YET: ", PENDING)):
        for one in known:
            if one.covers(exchange, what, came, read):
                return mark + one.reason
    return None
