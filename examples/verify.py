#!/usr/bin/env python3
"""Verifies the record of a run, as `backstop export RUN` or `backstop trace RUN --json` prints it, by
docs/record-format.md:

    backstop export RUN | python3 examples/verify.py [--head HASH]

A keyed record needs its key in BACKSTOP_LOG_KEY. The head, which an export has and `backstop verify RUN --json` prints,
shows that the end is not cut off. Prints one line; exits with 1 if the record is not sound.
"""

import hashlib
import hmac
import json
import os
import sys
from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def fail(seq, why):
    print(f"not sound at seq {seq}: {why}")
    sys.exit(1)


def text(value):
    """A text, with its length in front."""
    data = value.encode()
    return len(data).to_bytes(8, "big") + data


def payload(line):
    """The payload as it stands in the line: hashes cover its bytes, not what they mean."""
    # No field before `data` is an object, and no field after it holds more than hex digits.
    return line[line.index(',"data":') + 8 : line.rindex(',"salt":')].encode()


def covered(event, line, previous, plain):
    """The bytes that the hash of an event covers."""
    at = (datetime.fromisoformat(event["at"].replace("Z", "+00:00")) - EPOCH) // timedelta(milliseconds=1)
    cause = event["caused_by"]
    head = previous + event["seq"].to_bytes(8, "big") + at.to_bytes(8, "big", signed=True)
    head += (b"\0" if cause is None else b"\1") + (cause or 0).to_bytes(8, "big")
    head += event["schema"].to_bytes(4, "big") + text(event["type"]) + text(event["actor"])
    data = payload(line)
    if plain:
        return head + len(data).to_bytes(8, "big") + data
    if event["salt"] is None:
        return head + bytes.fromhex(event["data"]["erased"])
    return head + hashlib.sha256(bytes.fromhex(event["salt"]) + data).digest()


def is_erased(event):
    return event.get("salt") is None and set(event["data"]) == {"erased"}


def verify(lines, key=None, head=None, run=None):
    previous, named, erased, plain, mac = bytes(32), None, [], False, None
    for seq, line in enumerate(lines, 1):
        event = json.loads(line)
        if event["seq"] != seq or run not in (None, event["run"]):
            fail(seq, "an event is missing, or another run's")
        if seq == 1:
            # The first layout has no salts, and its hashes cover the payload itself.
            plain = event.get("salt") is None and not is_erased(event)
            if is_erased(event):
                mac = key
            elif event["data"].get("key_id") is not None:
                if key is None or hmac.new(key, b"backstop log key", "sha256").hexdigest()[:16] != event["data"]["key_id"]:
                    fail(1, f"it needs key {event['data']['key_id']}")
                mac = key
        if not plain and event.get("salt") is None and not is_erased(event):
            fail(seq, "its salt is missing")
        bytes_ = covered(event, line, previous, plain)
        digest = hmac.new(mac, bytes_, "sha256").digest() if mac else hashlib.sha256(bytes_).digest()
        if digest.hex() != event["hash"]:
            fail(seq, "its hash does not match")
        if is_erased(event) and not plain:
            erased.append(seq)
            # An earlier name is that of the original.
            named = None if event["type"] == "run.forked" else named
        elif event["type"] in ("run.started", "run.forked"):
            named = event["data"].get("run") or named
        previous = digest
    if not lines:
        fail(1, "there are no events")
    # A copy names its own run behind what it copied.
    if named not in (None, json.loads(lines[0])["run"]):
        fail(1, "it names another run")
    if head not in (None, previous.hex()):
        fail(len(lines) + 1, "the end is cut off")
    print(f"sound: {len(lines)} events, {'keyed' if mac else 'unkeyed'}, {len(erased)} erased, head {previous.hex()}")


if __name__ == "__main__":
    given, record = os.environ.get("BACKSTOP_LOG_KEY"), [line for line in sys.stdin.read().split("\n") if line]
    first = json.loads(record.pop(0)) if record and record[0].startswith('{"format":') else {}
    wanted = sys.argv[2] if sys.argv[1:2] == ["--head"] else first.get("head")
    verify(record, given and given.encode(), wanted, first.get("run"))
