"""Anthropic Messages, as `anthropic` reads and types it."""

import json

import anthropic
from anthropic.types.beta import BetaContentBlockParam
from pydantic import TypeAdapter

from answer import Answer, Call, calls_differ, plain

CLIENT = anthropic.Anthropic(api_key="k", base_url="http://localhost", max_retries=0)
BLOCK = TypeAdapter(BetaContentBlockParam)
STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "pause",
    "compaction": "pause",
    "model_context_window_exceeded": "context_exceeded",
}


def read(url, exchange):
    messages = CLIENT.with_options(base_url=url).beta.messages
    asked = {
        "model": exchange["model"],
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": "Go on."}],
    }
    if exchange["is_streamed"]:
        with messages.stream(**asked) as stream:
            answer = stream.get_final_message()
    else:
        answer = messages.create(**asked, timeout=60)
    usage = answer.usage
    # What compaction and advisors take is billed, and counted apart from the answer's own tokens.
    billed = [usage, *(one for one in usage.iterations or [] if one.type != "message")]
    count = lambda name: sum(getattr(one, name, None) or 0 for one in billed)
    cached, written = count("cache_read_input_tokens"), count("cache_creation_input_tokens")
    blocks = [plain(block) for block in answer.content]
    return Answer(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        thinking="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        calls=[
            Call(block["id"], block["name"], json.dumps(block["input"]))
            for block in blocks
            if block["type"] == "tool_use"
        ],
        stop=STOPS.get(answer.stop_reason, answer.stop_reason),
        input=count("input_tokens") + cached + written,
        output=count("output_tokens"),
        cached=cached,
        written=written,
        own=blocks,
    )


def sent_differences(answer, body):
    said = [message for message in body["messages"] if message["role"] == "assistant"]
    blocks = [unmarked(block) for message in said for block in message["content"]]
    for block in blocks:
        try:
            BLOCK.validate_python(block)
        except ValueError as error:
            yield "type", block, str(error)
    text = "".join(block.get("text") or "" for block in blocks if block.get("type") == "text")
    if text != answer.text:
        yield "text", answer.text, text
    calls = [(block["id"], block["name"], block["input"]) for block in blocks if block.get("type") == "tool_use"]
    yield from calls_differ(answer, calls)
    came, sent = merged(answer.own), merged(blocks)
    for at in range(max(len(came), len(sent))):
        pair = [blocks[at] if at < len(blocks) else None for blocks in (came, sent)]
        if pair[0] != pair[1]:
            yield f"block {(pair[0] or pair[1]).get('type')}", *pair
    results = [block["tool_use_id"] for block in body["messages"][-1]["content"] if block["type"] == "tool_result"]
    asked = [call.id for call in answer.calls]
    if results != asked:
        yield "results", asked, results


def unmarked(block):
    return {name: value for name, value in block.items() if name != "cache_control"}


def merged(blocks):
    """Returns blocks in a form in which equal ones are equal: texts in a row are one, and what only tells is left out."""
    whole = []
    for block in blocks:
        block = {name: value for name, value in block.items() if value is not None}
        if block.get("type") == "text":
            block = {"type": "text", "text": block["text"]}
            if not block["text"]:
                continue
            if whole and whole[-1].get("type") == "text":
                whole[-1]["text"] += block["text"]
                continue
        if block.get("type") == "tool_use":
            block = {name: block[name] for name in ("type", "id", "name", "input")}
        whole.append(block)
    return whole
