"""Holds our adapters to recorded answers: what they read of each, and what they send back, against the vendors' libraries.

Usage: check.py FOLDER PROGRAM, with the folder of gather.py and the example `corpus` of this package.
"""

import base64
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import warnings

import dialect_anthropic
import dialect_bedrock
import dialect_chat
import dialect_gemini
import dialect_ollama
import dialect_responses
from answer import value_of
from classes import misclassified
from known import reason_for
from served import serve

# What a message says of the one request.
REQUEST = re.compile(r" \(request `[^`]*`\)$")
ORACLES = {
    "anthropic": dialect_anthropic,
    "bedrock": dialect_bedrock,
    "chat": dialect_chat,
    "gemini": dialect_gemini,
    "ollama": dialect_ollama,
    "responses": dialect_responses,
}


def main(folder, program):
    warnings.simplefilter("ignore")
    exchanges = distinct(folder / "exchanges.jsonl")
    ours = read_by_us(exchanges, program)
    report = Report()
    for exchange, our, answer in zip(exchanges, ours, read_by_others(exchanges)):
        report.add(exchange, list(differences(exchange, our, answer)), our)
    report.show()
    return report.is_bad()


def distinct(path):
    """Returns the exchanges, each answer of a dialect once."""
    seen, exchanges = set(), []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            exchange = json.loads(line)
            key = (exchange["dialect"], exchange["status"], exchange["is_streamed"], exchange["body"])
            if key not in seen:
                seen.add(key)
                exchange["bytes"] = base64.b64decode(exchange["body"])
                exchanges.append(exchange)
    return exchanges


def read_by_us(exchanges, program):
    names = ("dialect", "host", "model", "is_streamed", "status", "headers", "body")
    lines = [json.dumps({name: exchange[name] for name in names}) for exchange in exchanges]
    done = subprocess.run([program], input="\n".join(lines), capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{program} failed: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def read_by_others(exchanges):
    """Returns what the vendor's library makes of each exchange: an answer, or the error it raises."""
    url = serve(exchanges)

    def read(number):
        exchange = exchanges[number]
        try:
            return ORACLES[exchange["dialect"]].read(f"{url}/{number}", exchange)
        except Exception as error:  # Whatever a library raises is what it says.
            return error

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(read, range(len(exchanges))))


def differences(exchange, our, answer):
    """Yields what differs: its name, what the vendor's library says, and what we do."""
    if isinstance(answer, Exception):
        expected = "failure" in our and misclassified(our["failure"])
        if expected:
            yield "class", sorted(expected), our["failure"]
        if "answer" in our:
            yield "only ours reads it", f"{type(answer).__name__}: {answer}", our["answer"]
        return
    if "failure" in our:
        yield "only theirs reads it", vars(answer), our["failure"]
        return
    yield from read_differences(answer, our["answer"])
    if our["sent"] is None:
        yield "not sent", None, our["unsent"]
        return
    body = json.loads(base64.b64decode(our["sent"]))
    for what, came, sent in ORACLES[exchange["dialect"]].sent_differences(answer, body):
        yield f"sent {what}", came, sent


def read_differences(answer, our):
    for name in ("text", "thinking", "stop", "input", "output", "cached", "written"):
        if getattr(answer, name) != our[name]:
            yield name, getattr(answer, name), our[name]
    if answer.total not in (0, our["input"] + our["output"]):
        yield "total", answer.total, our["input"] + our["output"]
    came = [(call.id, call.name, value_of(call.arguments)) for call in answer.calls]
    read = [(call["id"], call["name"], value_of(call["arguments"])) for call in our["calls"]]
    if came != read:
        yield "calls", came, read


class Report:
    def __init__(self):
        self.counts = collections.defaultdict(collections.Counter)
        self.reasons = collections.Counter()
        self.failures = collections.Counter()
        self.bad = []

    def add(self, exchange, differences, our):
        count = self.counts[exchange["dialect"]]
        count["exchanges"] += 1
        if "failure" in our:
            words = REQUEST.sub("", our["failure"]["message"])
            self.failures[exchange["dialect"], exchange["status"], our["failure"]["code"], words] += 1
            if not differences:
                count["failures"] += 1
                return
        unexplained = []
        for what, came, read in differences:
            reason = reason_for(exchange, what, came, read)
            self.reasons.update([reason] if reason else [])
            unexplained += [] if reason else [(exchange, what, came, read)]
        self.bad += unexplained
        count["differ" if unexplained else "explained" if differences else "equal"] += 1

    def show(self):
        for exchange, what, came, read in self.bad:
            print(f"{exchange['dialect']} {exchange['source']} ({exchange['url']}): {what}")
            print(f"    theirs: {shown(came)}")
            print(f"    ours:   {shown(read)}")
        for (dialect, status, code, message), count in sorted(self.failures.items()):
            print(f"{count:5} x {dialect} {status}: {code}: {shown(message)}")
        for reason, count in sorted(self.reasons.items()):
            print(f"{count:5} x {reason}")
        for dialect, count in sorted(self.counts.items()):
            print(f"{dialect}: " + ", ".join(f"{count[name]} {name}" for name in ("exchanges", "equal", "explained", "differ", "failures")))
        whole = sum(self.counts.values(), collections.Counter())
        print(f"corpus: {whole['exchanges']} exchanges, {whole['equal']} equal, {whole['explained']} explained, "
              f"{whole['differ']} differ, {whole['failures']} failures in both")

    def is_bad(self):
        return bool(self.bad)


def shown(value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    most = int(os.environ.get("BACKSTOP_CORPUS_SHOWN", "300"))
    return text if len(text) <= most else f"{text[:most]} ... ({len(text)} characters)"


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
