// Folds the events into turns, tool calls, gaps and failures.

// What an event of the type means for the run: it went wrong, or a reader should know.
const BAD = new Set(["run.failed", "model.failed", "hook.failed", "hook.aborted", "memory.degraded",
  "budget.exhausted", "guard.tripped", "error_store.degraded", "behavior.failed", "approval.denied"]);
const NOTED = new Set(["run.forked", "run.resumed", "run.reopened", "run.recovered", "run.parked",
  "run.waiting", "tool.late", "tool.probed", "tool.resolved", "operator.waiting", "budget.granted",
  "approval.requested", "approval.granted", "context.compacted", "warning", "result.stored",
  "tool.attempted", "signal.received", "operator.dispatched", "operator.returned"]);

function isBad(event) {
  return BAD.has(event.type) || (event.type === "tool.responded" && !event.data.ok)
    || event.type === "tool.attempted" || (event.type === "operator.returned" && event.data.outcome === "failed")
    || (event.type === "model.attempted" && event.data.code !== null);
}

// Lists dispatches that failed, but for those whose failure is that of the call that asked for them.
function failedDispatches(run) {
  const failed = run.dispatches.filter(({ returned }) => returned && returned.outcome === "failed");
  return failed.filter(({ call }) => !(call && call.answer && !call.answer.ok));
}

// Folds a run and those below it; each of these hangs at the dispatch that started it. What is named by an
// id in the page has a prefix in all runs but the one at the top.
function foldTree(data) {
  const { below, ...top } = data;
  const root = fold(top, "");
  const runs = new Map([[root.summary.run, root]]);
  below.forEach((each, at) => runs.set(each.summary.run, fold({ ...each, codes: data.codes }, `r${at + 2}-`)));
  for (const run of runs.values()) {
    for (const dispatch of run.dispatches) {
      const child = runs.get(dispatch.run);
      // A run is shown once, below the first that names it.
      if (!child || child === root || child.caller) continue;
      dispatch.child = child;
      child.caller = run;
      child.name = dispatch.operator;
    }
  }
  return root;
}

// Lists the runs right below a run.
function children(run) {
  return run.dispatches.map((dispatch) => dispatch.child).filter(Boolean);
}

function fold(data, prefix) {
  const run = { ...data, prefix, dispatches: [], turns: [], calls: [], gaps: [], failures: [], before: [], stored: new Map() };
  for (const error of data.errors) run.stored.set(error.id, error);
  const open = new Map(); // a call's id → the call that is proposed or runs
  const approvals = new Map();
  let turn = null;
  let attempt = null;
  let before = null;
  data.events.forEach((event, index) => {
    const d = event.data;
    event.line = data.lines[index];
    event.ms = Date.parse(event.at);
    if (before) gap(run, before, event, approvals, open, attempt);
    before = event;
    let call = d.call_id ? open.get(d.call_id) : undefined;
    switch (event.type) {
      case "model.requested":
        turn = { call: d.call, seq: event.seq, attempts: [], calls: [], notes: [], tokens: [0, 0, 0] };
        turn.from = event.ms;
        run.turns.push(turn);
        attempt = { from: event.ms };
        break;
      case "model.attempted": {
        if (!turn) break;
        const from = attempt ? attempt.from : event.ms;
        const wait = d.delay_ms === null ? 0 : d.delay_ms;
        turn.attempts.push({ ...d, from, to: event.ms, wait, seq: event.seq });
        if (d.usage) {
          turn.tokens[0] += d.usage.input_tokens;
          turn.tokens[1] += d.usage.output_tokens;
          turn.tokens[2] += d.usage.cached_tokens;
        }
        // What follows begins after the wait; without one it is an answer, or a resend at once.
        attempt = { from: event.ms + wait, may: d.delay_ms === null };
        if (d.code !== null) run.failures.push({ event, turn, what: "model" });
        break;
      }
      case "model.responded":
        if (!turn) break;
        turn.answer = d;
        attempt = null;
        for (const proposed of d.tool_calls) {
          call = { ...proposed, key: `c${run.calls.length + 1}`, turn, notes: [], waits: [], seq: event.seq };
          run.calls.push(call);
          turn.calls.push(call);
          open.set(call.id, call);
        }
        break;
      case "model.failed":
        attempt = null;
        if (turn) turn.failed = d;
        break;
      case "tool.requested":
        if (!call) break;
        call.ran = d.arguments;
        call.queued ??= event.ms;
        call.from ??= event.ms;
        call.runs = true;
        break;
      case "tool.responded":
        if (!call) break;
        call.answer = d;
        call.to = event.ms;
        // All calls of a batch are requested at once, and begin when there is a free place.
        call.from = call.ran ? Math.max(call.queued, event.ms - d.duration_ms) : event.ms;
        call.runs = false;
        call.seq = event.seq;
        if (!d.ok) run.failures.push({ event, call, what: d.tool });
        break;
      case "tool.attempted":
        if (call) call.waits.push({ from: event.ms, to: event.ms + d.delay_ms });
        run.failures.push({ event, call, turn, what: call ? call.name : "tool" });
        break;
      case "error.stored":
        if (call) call.storedAs = d;
        break;
      case "approval.requested":
        approvals.set(d.approval_id, event);
        if (call) call.proposed = d.arguments;
        break;
      case "approval.granted":
      case "approval.denied":
        approvals.delete(d.approval_id);
        break;
      case "operator.dispatched": {
        const known = run.dispatches.find((each) => each.run === d.run);
        if (known) { known.attempts = d.attempt; break; }
        const dispatch = { ...d, attempts: d.attempt, seq: event.seq, from: event.ms, call };
        run.dispatches.push(dispatch);
        if (call) (call.dispatches ??= []).push(dispatch);
        break;
      }
      case "operator.returned": {
        const dispatch = run.dispatches.find((each) => each.run === d.run);
        if (dispatch) Object.assign(dispatch, { returned: d, to: event.ms, end: event, turn });
        break;
      }
      case "run.started":
        run.began = d;
        break;
      case "run.finished":
      case "run.failed":
        run.ended = { ...d, seq: event.seq, type: event.type };
        break;
    }
    // The end of the run stands at the top, and the last attempt has said why its call failed.
    const last = turn && turn.attempts.at(-1);
    const repeats = event.type === "run.failed"
      || (event.type === "model.failed" && last && last.code === d.reason);
    if (BAD.has(event.type) && !repeats) run.failures.push({ event, call, turn, what: event.type });
    // A run's failure stands at the top, and a model's in its turn.
    const told = event.type === "run.failed" || event.type === "model.failed";
    if (!told && (BAD.has(event.type) || NOTED.has(event.type))) {
      (call ? call.notes : turn ? turn.notes : run.before).push(event);
    }
  });
  for (const { end, call, turn, operator } of failedDispatches(run)) {
    run.failures.push({ event: end, call, turn, what: operator });
  }
  run.failures.sort((one, other) => one.event.seq - other.event.seq);
  run.start = data.events.length ? data.events[0].ms : 0;
  run.end = before ? before.ms : 0;
  for (const call of run.calls) {
    if (call.runs) { call.open = true; call.to = run.end; }
  }
  if (turn && attempt && !attempt.may) turn.open = { from: Math.min(attempt.from, run.end), to: run.end };
  return run;
}

// Marks the time between two events in which the run waited for people, or its process was gone.
function gap(run, before, event, approvals, open, attempt) {
  if (event.ms <= before.ms) return;
  const taken = ["run.resumed", "run.reopened", "run.recovered", "run.forked"].includes(event.type);
  const busy = [...open.values()].some((call) => call.runs) || (attempt && !attempt.may);
  const waits = before.type === "run.waiting" || before.type === "run.parked" ? before.data.for || "parked" : null;
  const asked = approvals.size > 0 && !busy;
  const why = asked || waits === "approval" ? "approval" : waits || (taken ? "stopped" : null);
  if (why) run.gaps.push({ from: before.ms, to: event.ms, why });
}
