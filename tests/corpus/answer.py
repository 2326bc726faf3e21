"""What an answer says, as a vendor's library reads it."""

import json
from dataclasses import dataclass, field


@dataclass
class Call:
    id: str
    name: str
    # The arguments as text, which is how most protocols have them.
    arguments: str


@dataclass
class Answer:
    text: str = ""
    thinking: str = ""
    calls: list = field(default_factory=list)
    stop: str = ""
    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    # All tokens, where the provider adds them up.
    total: int = 0
    # What the library made of the answer in the protocol's own shape, for what goes back.
    own: object = None


def value_of(arguments):
    """Returns arguments as a value; what is no JSON stays text."""
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments


def calls_differ(answer, sent):
    """Yields what differs between the calls of an answer and those sent back: ids, names and values of arguments. A
    call without an id may be given one."""
    came = [(call.id, call.name, value_of(call.arguments)) for call in answer.calls]
    is_same = len(came) == len(sent) and all(
        one[1:] == other[1:] and one[0] in ("", other[0]) for one, other in zip(came, sent)
    )
    if not is_same:
        yield "calls", came, sent


def plain(model):
    """Returns a pydantic model of a library as plain data, with the fields that were set."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)
