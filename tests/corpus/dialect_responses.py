"""OpenAI Responses, as `openai` reads and types it."""

import openai
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

from answer import Answer, Call, calls_differ, plain, value_of

CLIENT = openai.OpenAI(api_key="k", base_url="http://localhost", max_retries=0)
ITEM = TypeAdapter(ResponseInputItemParam)
# Items that are read.
READ = ("function_call", "message", "reasoning")


def read(url, exchange):
    client = CLIENT.with_options(base_url=url)
    asked = {"model": exchange["model"], "input": "Go on."}
    if exchange["is_streamed"]:
        with client.responses.stream(**asked) as stream:
            events = list(stream)
        answer = events[-1].response
        # Some servers end with an answer that leaves its items out; those that came are it.
        items = answer.output or [
            event.item for event in events if event.type == "response.output_item.done"
        ]
    else:
        answer = client.responses.create(**asked)
        items = answer.output
    messages = [item for item in items if item.type == "message"]
    texts = ["".join(said(part) for part in item.content) for item in messages]
    calls = [
        Call(item.call_id, item.name, item.arguments) for item in items if item.type == "function_call"
    ]
    refused = any(part.type == "refusal" for item in messages for part in item.content)
    usage = answer.usage
    details = usage and usage.input_tokens_details
    return Answer(
        text="\n\n".join(text for text in texts if text),
        thinking="\n\n".join(thoughts(items)),
        calls=calls,
        stop=stop_of(answer, calls, refused),
        input=usage.input_tokens if usage else 0,
        output=usage.output_tokens if usage else 0,
        cached=details and details.cached_tokens or 0,
        written=details and getattr(details, "cache_write_tokens", None) or 0,
        total=usage and usage.total_tokens or 0,
        own=[plain(item) for item in items],
    )


def said(part):
    return part.refusal if part.type == "refusal" else part.text


def thoughts(items):
    for item in items:
        if item.type == "reasoning":
            parts = [part.text for part in item.summary or []] or [part.text for part in item.content or []]
            yield from (part for part in parts if part)


def stop_of(answer, calls, refused):
    if answer.status == "incomplete":
        reason = answer.incomplete_details and answer.incomplete_details.reason
        return {"max_output_tokens": "max_tokens"}.get(reason, reason)
    if answer.status != "completed":
        return answer.status
    return "refusal" if refused else "tool_use" if calls else "end"


def sent_differences(answer, body):
    items = body["input"][1:]
    for item in items:
        try:
            # Nothing is kept at the provider, so that no id of it goes back, which the type requires.
            ITEM.validate_python({"id": "rs_1", **item} if item.get("type") == "reasoning" else item)
        except ValueError as error:
            yield "type", item, str(error)
    sent = [
        (item["call_id"], item["name"], value_of(item["arguments"]))
        for item in items
        if item.get("type") == "function_call"
    ]
    yield from calls_differ(answer, sent)
    results = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    if results != [call[0] for call in sent]:
        yield "results", [call[0] for call in sent], results
    # Reasoning that is not encrypted is kept at the provider, which is not asked to keep any.
    thought = [it for it in answer.own if it["type"] == "reasoning" and it.get("encrypted_content")]
    kept = [item for item in items if item.get("type") == "reasoning"]
    for came, back in zip(thought, kept):
        for name in ("summary", "encrypted_content"):
            if came.get(name) != back.get(name):
                yield f"reasoning {name}", came.get(name), back.get(name)
    if len(thought) != len(kept):
        yield "reasoning", thought, kept
    others = list(served(answer.own))
    kept = [item for item in items if item.get("type", "message") not in (*READ, "function_call_output")]
    if [item["type"] for item in others] != [item["type"] for item in kept]:
        yield "other items", others, kept
    yield from messages_differ(answer, items)
    yield from order_differs(answer, items)


def served(own):
    """Yields the items of OpenAI's own tools that go back: each with the reasoning before it, but for images."""
    is_broken = False
    for item in own:
        if item["type"] == "reasoning":
            is_broken = not item.get("encrypted_content")
        elif item["type"] in READ:
            is_broken = False
        elif item["type"] == "image_generation_call" or item.get("status") not in (None, "completed", "failed"):
            is_broken = True
        elif not is_broken:
            yield item


def messages_differ(answer, items):
    came = [
        ("".join(words(part) for part in item["content"]), item.get("phase"))
        for item in answer.own
        if item["type"] == "message"
    ]
    came = [message for message in came if message[0]]
    sent = [(text_of(item), item.get("phase")) for item in items if item.get("role") == "assistant"]
    whole = lambda messages: "".join(text for text, _ in messages).replace("\n\n", "")
    if whole(sent) != whole(came):
        yield "text", came, sent
    elif any(phase for _, phase in came) and sent != came:
        yield "phase", came, sent


def words(part):
    return part.get("text") or part.get("refusal") or ""


def text_of(item):
    content = item.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text") or "" for part in content)


def order_differs(answer, items):
    """The items stand in the order in which they came."""
    def order(items):
        kind = lambda item: item.get("type") or "message"
        seen = [kind(item) for item in items if kind(item) in READ and item.get("role") != "user"]
        return [one for at, one in enumerate(seen) if at == 0 or one != "message" or seen[at - 1] != one]

    kept = [it for it in answer.own if it["type"] != "reasoning" or it.get("encrypted_content")]
    kept = [it for it in kept if it["type"] != "message" or any(words(part) for part in it["content"])]
    # An answer that says nothing stays a message, so that the turns alternate.
    if order(kept) != order(items) and (order(kept) or answer.text):
        yield "order", order(kept), order(items)
