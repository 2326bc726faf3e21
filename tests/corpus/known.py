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
        "a generated image alone is no answer: the request asked for output that adapters do not support",
        lambda exchange, what, came, read: what == "only theirs reads it"
        and not has_content(came)
        and "with data alone" in read["message"],
    ),
    Known(
        "OpenRouter ends an answer at its token limit with an error after the finish reason: the answer is read as cut",
        lambda exchange, what, came, read: what == "only ours reads it"
        and read["stop"] == "max_tokens"
        and b"Token limit reached" in exchange["bytes"],
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


def has_content(answer):
    return any(answer[part] for part in ("text", "thinking", "calls"))


def is_unsigned(block):
    return "signature" not in block.get("reasoningContent", {}).get("reasoningText", {"signature": ""})


def reason_for(exchange, what, came, read):
    """Returns why a difference is let pass; `None` where it is not."""
    is_loss = has_content(came) if what == "only theirs reads it" else bool(came)
    if what in LOSSES and is_loss:
        return None
    for mark, known in (("", KNOWN), ("NOT YET: ", PENDING)):
        for one in known:
            if one.covers(exchange, what, came, read):
                return mark + one.reason
    return None
