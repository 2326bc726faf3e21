"""Bedrock Converse, as `botocore` reads it and holds requests to its model."""

import base64
import json

import boto3
from botocore.config import Config
from botocore.validate import ParamValidator

from answer import Answer, Call, calls_differ, value_of

SESSION = boto3.Session("k", "s", region_name="us-east-1")
CONFIG = Config(retries={"total_max_attempts": 1})
STOPS = {
    "end_turn": "end",
    "stop_sequence": "end",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "malformed_model_output": "malformed",
    "malformed_tool_use": "malformed",
    "model_context_window_exceeded": "context_exceeded",
}


def client(url):
    return SESSION.client("bedrock-runtime", endpoint_url=url, config=CONFIG)


CONVERSE = client("http://localhost").meta.service_model.operation_model("Converse").input_shape


def read(url, exchange):
    asked = {"modelId": "m", "messages": [{"role": "user", "content": [{"text": "Go on."}]}]}
    if exchange["is_streamed"]:
        blocks, stop, usage = assemble(client(url).converse_stream(**asked)["stream"])
    else:
        answer = client(url).converse(**asked)
        blocks, stop, usage = answer["output"]["message"]["content"], answer["stopReason"], answer["usage"]
    cached, written = usage.get("cacheReadInputTokens", 0), usage.get("cacheWriteInputTokens", 0)
    thoughts = [block["reasoningContent"].get("reasoningText", {}) for block in blocks if "reasoningContent" in block]
    uses = [block["toolUse"] for block in blocks if "toolUse" in block]
    calls = [Call(use["toolUseId"], use["name"], json.dumps(use["input"])) for use in uses if not is_server(use)]
    stop = STOPS.get(stop, stop)
    return Answer(
        text="".join(text(block) for block in blocks),
        thinking="".join(thought.get("text", "") for thought in thoughts),
        calls=calls,
        stop="tool_use" if calls and stop == "end" else stop,
        input=usage["inputTokens"] + cached + written,
        output=usage["outputTokens"],
        cached=cached,
        written=written,
        total=usage.get("totalTokens", 0),
        own=blocks,
    )


def text(block):
    cited = block.get("citationsContent", {}).get("content", [])
    return block.get("text", "") + "".join(part.get("text", "") for part in cited)


def is_server(use):
    return use.get("type") == "server_tool_use"


def assemble(events):
    """Puts the blocks of a stream together; botocore leaves that to its callers."""
    blocks, inputs, stop, usage = {}, {}, "", {"inputTokens": 0, "outputTokens": 0}
    for event in events:
        if "contentBlockStart" in event:
            start = event["contentBlockStart"]
            blocks[start["contentBlockIndex"]] = {name: dict(value) for name, value in start["start"].items()}
        elif "contentBlockDelta" in event:
            at, delta = event["contentBlockDelta"]["contentBlockIndex"], event["contentBlockDelta"]["delta"]
            add(blocks.setdefault(at, {}), inputs, at, delta)
        elif "messageStop" in event:
            stop = event["messageStop"]["stopReason"]
        elif "metadata" in event:
            usage = event["metadata"]["usage"]
    for at, pieces in inputs.items():
        blocks[at]["toolUse"]["input"] = value_of(pieces)
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"].setdefault("input", {})
    return [blocks[at] for at in sorted(blocks)], stop, usage


def add(block, inputs, at, delta):
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        inputs[at] = inputs.get(at, "") + delta["toolUse"]["input"]
    elif "reasoningContent" in delta:
        piece, whole = delta["reasoningContent"], block.setdefault("reasoningContent", {})
        for name in ("text", "signature"):
            if name in piece:
                told = whole.setdefault("reasoningText", {})
                told[name] = told.get(name, "") + piece[name]
        if "redactedContent" in piece:
            whole["redactedContent"] = whole.get("redactedContent", b"") + piece["redactedContent"]


def sent_differences(answer, body):
    report = ParamValidator().validate({"modelId": "m", **body}, CONVERSE)
    if report.has_errors():
        yield "type", "ConverseRequest", report.generate_report()
    sent = [block for block in body["messages"][1]["content"] if "cachePoint" not in block]
    said = "".join(block.get("text") or "" for block in sent)
    if said != answer.text:
        yield "text", answer.text, said
    uses = [block["toolUse"] for block in sent if "toolUse" in block and not is_server(block["toolUse"])]
    calls = [(use["toolUseId"], use["name"], use["input"]) for use in uses]
    yield from calls_differ(answer, calls)
    came = [shape(block) for block in answer.own]
    came = [block for block in came if block]
    if merged(came) != merged(sent):
        yield "block order or content", merged(came), merged(sent)
    results = [block["toolResult"]["toolUseId"] for block in body["messages"][2]["content"] if "toolResult" in block]
    asked = [call.id for call in answer.calls]
    if results != asked:
        yield "results", asked, results


def shape(block):
    """Returns a block as JSON has it; `None` of one that says nothing."""
    if "reasoningContent" in block and "redactedContent" in block["reasoningContent"]:
        data = base64.b64encode(block["reasoningContent"]["redactedContent"]).decode()
        return {"reasoningContent": {"redactedContent": data}}
    if "citationsContent" in block:
        return {"text": text(block)} if text(block) else None
    if "toolUse" in block and not is_server(block["toolUse"]):
        # Newer than the library's own model of requests.
        return {"toolUse": {name: value for name, value in block["toolUse"].items() if name != "type"}}
    return None if block.get("text") == "" or not block else block


def merged(blocks):
    whole = []
    for block in blocks:
        if "text" in block and whole and "text" in whole[-1]:
            whole[-1] = {"text": whole[-1]["text"] + block["text"]}
        else:
            whole.append(block)
    return whole
