"""Ollama's own protocol, as `ollama` reads and types it."""

import json

import ollama

from answer import Answer, Call, value_of


def read(url, exchange):
    asked = {"model": exchange["model"], "messages": [{"role": "user", "content": "Go on."}]}
    pieces = ollama.Client(host=url).chat(**asked, stream=exchange["is_streamed"])
    pieces = list(pieces) if exchange["is_streamed"] else [pieces]
    last = pieces[-1]
    calls = [
        Call("", call.function.name, json.dumps(dict(call.function.arguments)))
        for piece in pieces
        for call in piece.message.tool_calls or []
    ]
    stop = {"stop": "end", "length": "max_tokens"}.get(last.done_reason, last.done_reason)
    return Answer(
        text="".join(piece.message.content or "" for piece in pieces),
        thinking="".join(piece.message.thinking or "" for piece in pieces),
        calls=calls,
        stop="tool_use" if calls and stop == "end" else stop,
        input=last.prompt_eval_count or 0,
        output=last.eval_count or 0,
    )


def sent_differences(answer, body):
    for message in body["messages"]:
        try:
            ollama.Message.model_validate(message)
        except ValueError as error:
            yield "type", message, str(error)
    message = body["messages"][1]
    if message["content"] != answer.text:
        yield "text", answer.text, message["content"]
    sent = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls") or []]
    came = [(call.name, value_of(call.arguments)) for call in answer.calls]
    if sent != came:
        yield "calls", came, sent
    results = [one["tool_name"] for one in body["messages"][2:] if one["role"] == "tool"]
    if results != [name for name, _ in came]:
        yield "results", came, results
