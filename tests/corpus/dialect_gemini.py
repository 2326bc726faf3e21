"""Gemini, as `google-genai` reads and types it."""

import json

from google import genai
from google.genai import types

from answer import Answer, Call, calls_differ

CLIENT = genai.Client(api_key="k", http_options=types.HttpOptions(api_version="v1beta"))
STOPS = {
    "STOP": "end",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "MALFORMED_FUNCTION_CALL": "malformed",
}


def read(url, exchange):
    config = types.GenerateContentConfig(http_options=types.HttpOptions(base_url=url))
    asked = {"model": exchange["model"], "contents": "Go on.", "config": config}
    if exchange["is_streamed"]:
        pieces = list(CLIENT.models.generate_content_stream(**asked))
    else:
        pieces = [CLIENT.models.generate_content(**asked)]
    candidates = [piece.candidates[0] for piece in pieces if piece.candidates]
    parts = [part for one in candidates if one.content for part in one.content.parts or []]
    calls = [
        Call(part.function_call.id or "", part.function_call.name, json.dumps(part.function_call.args or {}))
        for part in parts
        if part.function_call
    ]
    reasons = [one.finish_reason for one in candidates if one.finish_reason]
    stop = reasons[-1].value if reasons else ""
    stop = STOPS.get(stop, stop)
    usage = [piece.usage_metadata for piece in pieces if piece.usage_metadata]
    return Answer(
        text="".join(part.text for part in parts if part.text and not part.thought),
        thinking="".join(part.text for part in parts if part.text and part.thought),
        calls=calls,
        stop="tool_use" if calls and stop == "end" else stop,
        **billed(usage),
        own=[part.model_dump(mode="json", by_alias=True, exclude_none=True) for part in parts],
    )


def billed(usage):
    """Returns the counts; each is what was said of it last."""
    last = lambda name: next((n for one in reversed(usage) if (n := getattr(one, name))), 0)
    asked = last("prompt_token_count") + last("tool_use_prompt_token_count")
    said = last("candidates_token_count") + last("thoughts_token_count")
    return {
        "input": asked,
        "output": max(said, last("total_token_count") - asked),
        "cached": last("cached_content_token_count"),
        "total": last("total_token_count"),
    }


def sent_differences(answer, body):
    for content in body["contents"]:
        try:
            types.Content.model_validate(content)
        except ValueError as error:
            yield "type", content, str(error)
    parts = body["contents"][1]["parts"] if len(body["contents"]) > 2 else []
    text = "".join(part.get("text") or "" for part in parts if not part.get("thought"))
    if text != answer.text:
        yield "text", answer.text, text
    sent = [part["functionCall"] for part in parts if "functionCall" in part]
    sent = [(call.get("id", ""), call["name"], call.get("args") or {}) for call in sent]
    yield from calls_differ(answer, sent)
    results = [part["functionResponse"] for part in body["contents"][-1]["parts"] if "functionResponse" in part]
    results = [(result.get("id", ""), result["name"]) for result in results]
    if results != [call[:2] for call in sent]:
        yield "results", sent, results
    signed = lambda parts: [(kind(part), part["thoughtSignature"]) for part in parts if part.get("thoughtSignature")]
    back = [pair for pair in signed(parts) if pair[1] != "skip_thought_signature_validator"]
    same = lambda pairs: [(kind, text.replace("-", "+").replace("_", "/").rstrip("=")) for kind, text in pairs]
    if same(signed(answer.own)) != same(back):
        yield "signatures", signed(answer.own), back
    # Images that the model made are no part of an answer.
    others = [part for part in answer.own if kind(part) == "other" and "inlineData" not in part]
    if others != [part for part in parts if kind(part) == "other"]:
        yield "other parts", others, [part for part in parts if kind(part) == "other"]


def kind(part):
    return "call" if "functionCall" in part else "text" if "text" in part else "other"
