"""Chat Completions, as `openai` reads and types it."""

import openai
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam
from openai.types.chat.chat_completion import Choice
from pydantic import TypeAdapter

from answer import Answer, Call, calls_differ, plain, value_of

CLIENT = openai.OpenAI(api_key="k", base_url="http://localhost", max_retries=0)
ASSISTANT = TypeAdapter(ChatCompletionMessageParam)
STOPS = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "model_length": "context_exceeded",
}


def read(url, exchange):
    client = CLIENT.with_options(base_url=url)
    asked = {"model": exchange["model"], "messages": [{"role": "user", "content": "Go on."}]}
    if exchange["is_streamed"]:
        # The library's own accumulator refuses what was cut, and pieces without an index.
        choice, usage = assemble(client.chat.completions.create(**asked, stream=True))
    else:
        answer = client.chat.completions.create(**asked)
        choice, usage = next(one for one in answer.choices if not one.index), answer.usage
    message = choice.message or ChatCompletionMessage(role="assistant")
    calls = [
        Call(call.id or "", call.function.name, call.function.arguments or "")
        for call in message.tool_calls or []
    ]
    # The protocol's older form has one call, without an id.
    if message.function_call and not calls:
        calls = [Call("", message.function_call.name or "", message.function_call.arguments or "")]
    stop = STOPS.get(choice.finish_reason, choice.finish_reason)
    stop = "tool_use" if stop == "end" and calls else stop
    stop = "refusal" if message.refusal and stop in ("end", "tool_use") else stop
    return Answer(
        text=said(message.content) + (message.refusal or ""),
        thinking=getattr(message, "reasoning_content", None)
        or getattr(message, "reasoning", None)
        or "".join(said(one["thinking"]) for one in thoughts(message.content)),
        calls=calls,
        stop=stop,
        **billed(usage),
        own=plain(message),
    )


def billed(usage):
    """Returns the counts. Some endpoints leave thinking out of those of the answer, and have it in the total."""
    if not usage:
        return {}
    details = usage.prompt_tokens_details
    asked, total = usage.prompt_tokens or 0, usage.total_tokens or 0
    return {
        "input": asked,
        "output": max(usage.completion_tokens or 0, total - asked),
        "cached": details and details.cached_tokens or 0,
        "written": details and getattr(details, "cache_write_tokens", None) or 0,
        "total": total,
    }


def assemble(chunks):
    """Puts a stream together."""
    message, calls, reason, usage = {"role": "assistant"}, [], None, None
    for chunk in chunks:
        usage = chunk.usage or of_groq(chunk) or usage
        for choice in (one for one in chunk.choices or [] if not one.index):
            reason = choice.finish_reason or reason
            for name, value in plain(choice.delta).items() if choice.delta else ():
                if name == "tool_calls":
                    add_calls(calls, value or [])
                elif name == "function_call" and value:
                    known = message.setdefault(name, {"name": "", "arguments": ""})
                    for part in known:
                        known[part] += value.get(part) or ""
                elif name != "role" and isinstance(value, (str, list)):
                    message[name] = message[name] + value if message.get(name) else value
    message["tool_calls"] = calls or None
    choice = Choice.construct(index=0, finish_reason=reason, message=message)
    return choice, usage


def of_groq(chunk):
    """Returns the counts where Groq has them in a stream."""
    counts = (getattr(chunk, "x_groq", None) or {}).get("usage")
    return counts and CompletionUsage.construct(**counts)


def add_calls(calls, pieces):
    """A piece with an id begins a call; others go on with the one of their index, or the last."""
    for piece in pieces:
        function, index = piece.get("function") or {}, piece.get("index")
        known = [call for call in calls if index is not None and call["index"] == index]
        is_new = not calls or (piece.get("id") and piece["id"] not in [call["id"] for call in calls])
        if is_new or (not known and index is not None) or (function.get("name") and not piece.get("id")):
            calls.append({"index": index, "id": "", "type": "function", "function": {"name": "", "arguments": ""}})
            known = calls
        call = (known or calls)[-1]
        call["id"] = call["id"] or piece.get("id") or ""
        call["function"]["name"] = call["function"]["name"] or function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""


def said(content):
    """Returns the text of a content; some endpoints send parts."""
    if isinstance(content, list):
        return "".join(part.get("text") or "" for part in content if isinstance(part, dict))
    return content or ""


def thoughts(content):
    """Returns the parts that Mistral's models think in."""
    parts = content if isinstance(content, list) else []
    return [part for part in parts if isinstance(part, dict) and part.get("thinking")]


def sent_differences(answer, body):
    """Says where what is sent back differs from what came."""
    message = body["messages"][1]
    if thoughts(message.get("content")):
        yield from misfits({**message, "content": said(message["content"])})
    else:
        yield from misfits(message)
    if said(message.get("content")) != answer.text:
        yield "text", answer.text, message.get("content")
    if thoughts(message.get("content")) != thoughts(answer.own.get("content")):
        yield "thoughts", thoughts(answer.own.get("content")), thoughts(message.get("content"))
    sent = [
        (call["id"], call["function"]["name"], value_of(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    ]
    yield from calls_differ(answer, sent)
    results = [one["tool_call_id"] for one in body["messages"][2:] if one["role"] == "tool"]
    if results != [call[0] for call in sent]:
        yield "results", [call[0] for call in sent], results
    yield from kept_differences(answer, message)


def kept_differences(answer, message):
    """Yields what the endpoint wants back and is not sent: thinking goes back with the calls that it led to."""
    details = [merged(one.get("reasoning_details") or []) for one in (answer.own, message)]
    if details[0] != details[1]:
        yield "reasoning_details", *details
    names = ("reasoning_content", "reasoning") if answer.calls and not details[0] else ()
    for name in (*names, "extra_content"):
        if answer.own.get(name) and message.get(name) != answer.own[name]:
            yield name, answer.own[name], message.get(name)


def merged(details):
    """Puts pieces of details together, of which a stream brings each in many."""
    whole = []
    for detail in details:
        detail = {name: value for name, value in detail.items() if value is not None}
        last = whole[-1] if whole else {}
        if detail.get("type") == "reasoning.text" == last.get("type") and detail.get("index") == last.get("index"):
            last["text"] = last.get("text", "") + detail.pop("text", "")
            last.update(detail)
        else:
            whole.append(detail)
    return whole


def misfits(message):
    try:
        ASSISTANT.validate_python(message)
    except ValueError as error:
        yield "type", "ChatCompletionMessageParam", str(error)
