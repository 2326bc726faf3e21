"""A log of events of activegraph in a SQLite file: `… append|load|step EVENTS`."""

import os
import shutil
import sys
import tempfile

import activegraph
from activegraph import Event, FrozenClock, Graph, Runtime, behavior

from contest import serve

WHAT, EVENTS = sys.argv[1], int(sys.argv[2])
AT = "2026-01-01T00:00:00Z"
folder = tempfile.mkdtemp()


@behavior(name="ticker", on=["tick"])
def ticker(event, graph, ctx):
    graph.emit("tock", {"n": 1})


def emit(graph, kind="tool.result"):
    payload = {"note": "x" * 150}
    graph.emit(Event(id=graph.ids.event(), type=kind, payload=payload, actor="bench", timestamp=AT))


def fill(behaviors=()):
    # One file for all runs, so that a round does not pay for making it.
    path = os.path.join(folder, "log.db")
    graph = Graph(clock=FrozenClock(AT))
    runtime = Runtime(graph, persist_to=path, behaviors=list(behaviors))
    for _ in range(EVENTS):
        emit(graph)
    return path, graph, runtime


def append():
    _, graph, _ = fill()
    graph.store.close()


try:
    if WHAT == "append":
        work = append
    elif WHAT == "load":
        path, graph, _ = fill()
        run = graph.run_id
        graph.store.close()

        def work():
            runtime = Runtime.load(path, run_id=run, behaviors=[])
            runtime.graph.store.close()
    else:
        _, graph, runtime = fill([ticker])
        while not runtime.run_quantum(max_queue_events=100_000, max_seconds=60).idle:
            pass

        def work():
            emit(graph, "tick")
            while not runtime.run_quantum(max_queue_events=100, max_seconds=5).idle:
                pass

    serve(f"activegraph {activegraph.__version__}", work)
finally:
    shutil.rmtree(folder)
