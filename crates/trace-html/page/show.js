// The page around the timeline.

const OUTCOMES = { completed: "ok", failed: "failed", running: "open", waiting_approval: "wait" };

function state(call) {
  if (!call.answer) return "open";
  return call.answer.ok ? "ok" : "failed";
}

function said(call) {
  if (!call.answer) return call.open ? "no answer recorded" : "not started";
  return call.answer.ok ? "ok" : call.answer.error ? call.answer.error.reason : "failed";
}

// What a call was given: what it ran with, or would have.
function given(call) {
  return call.ran || call.proposed || call.arguments;
}

function brief(value) {
  const text = typeof value === "string" ? value : exactText(value);
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

// Parts arguments from the diff among them.
function parted(value) {
  const has = value && !Array.isArray(value) && typeof value.diff === "string" && value.diff.includes("\n");
  if (!has) return [value, null];
  const { diff, ...rest } = value;
  return [rest, diff];
}

// Shows arguments, and below them, line by line, the diff among them.
function shownArguments(label, value) {
  const [rest, diff] = parted(value);
  if (diff === null) return [block(label, rest)];
  const kind = (line) => ({ "+": "added", "-": "removed", "@": "hunk" })[line[0]];
  const lines = diff.replace(/\n$/, "").split("\n").map((line) => element("span", { class: kind(line) }, `${line}\n`));
  return [block(label, rest), element("div", { class: "block" }, element("h4", {}, "what changes"),
    element("pre", { class: "diff", tabindex: "0" }, lines))];
}

// What a code means and what to do, for who does not know it.
function explain(run, reason) {
  const known = Object.hasOwn(run.codes, reason) ? run.codes[reason] : null;
  return known && element("p", { class: "explain" }, known.meaning, " ", element("em", {}, known.advice));
}

function chain(texts) {
  if (!texts || texts.length < 2) return null;
  return element("ol", { class: "chain" }, texts.map((text) => element("li", {}, text)));
}

function seq(run, number) {
  return element("a", { class: "seq", href: `#${run.prefix}seq-${number}`, title: "the event in the record" }, `#${number}`);
}

function header(run) {
  const { summary } = run;
  const { usage } = summary;
  const outcome = summary.outcome || summary.state;
  const pill = element("span", { class: `pill ${OUTCOMES[outcome] || "wait"}` }, outcome.replaceAll("_", " "));
  const fact = (label, value, more) => element("div", { class: "fact" },
    element("dt", {}, label), element("dd", {}, value, more && element("small", {}, more)));
  const failed = run.calls.filter((call) => state(call) === "failed");
  const refused = failed.filter((call) => !call.ran).length;
  const bad = [failed.length > refused && `${number(failed.length - refused)} failed`, refused > 0 && `${number(refused)} more never ran`];
  const retries = run.turns.flatMap((turn) => turn.attempts).reduce((sum, each) => sum + each.wait, 0);
  const people = run.gaps.filter((gap) => gap.why === "approval").reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const waits = [retries && `${duration(retries)} before retries`, people && `${duration(people)} for people`];
  const attempts = usage.model_attempts;
  const steps = run.dispatches.filter(({ call }) => !call);
  const failedSteps = failedDispatches(run).filter(({ call }) => !call).length;
  return element("header", {},
    element("h1", {}, summary.agent || "run", " ", pill),
    element("p", { class: "about" }, "One run of an LLM agent: what it was asked, what the model answered, which tools it called, and what failed."),
    element("dl", { class: "facts" },
      fact("took", duration(run.end - run.start), waits.filter(Boolean).map((wait) => `waited ${wait}`).join(", ")),
      fact("model calls", number(usage.model_calls), attempts > usage.model_calls ? `${number(attempts)} attempts` : ""),
      fact("tool calls", number(usage.tool_calls), bad.filter(Boolean).join(", ")),
      steps.length > 0 && fact("steps", number(steps.length), failedSteps > 0 ? `${number(failedSteps)} failed` : ""),
      fact("tokens", number(usage.total_tokens),
        `${number(usage.input_tokens)} in${usage.cached_tokens ? ` (${number(usage.cached_tokens)} cached)` : ""}, ${number(usage.output_tokens)} out${usage.estimated ? " (estimated)" : ""}`),
      usage.cost_usd !== null && fact("cost", `$${+usage.cost_usd.toFixed(4)}`),
      fact("started", summary.started_at.slice(0, 10), `${summary.started_at.slice(11, 19)} UTC`)),
    element("p", { class: "ids" }, "run ", code(summary.run), " session ", code(summary.session)));
}

// Why the run did not complete.
function ending(run) {
  const { summary, ended } = run;
  if (!summary.reason) return null;
  const failed = summary.outcome === "failed";
  return element("section", { class: failed ? "end failed" : "end noted" },
    element("h2", {}, failed ? "Why it failed" : "Why it stopped"),
    element("p", {}, code(summary.reason), " ", ended && ended.message, " ", ended && seq(run, ended.seq)),
    chain(ended && ended.chain), explain(run, summary.reason));
}

function failures(run) {
  if (run.failures.length === 0) return null;
  const rows = run.failures.map(({ event, call, turn, what }) => {
    const d = event.data;
    const why = d.error ? d.error : d;
    const reason = why.reason || why.code;
    const target = run.prefix + (call ? `call-${call.key}` : turn ? `turn-${turn.seq}` : `seq-${event.seq}`);
    const own = ["model.attempted", "operator.returned"].includes(event.type);
    const text = own ? event.line : why.message || event.line;
    return element("li", {}, element("button", { type: "button", onclick: () => reveal(target) },
      element("span", { class: "when" }, duration(event.ms - run.start)),
      element("span", { class: "what" }, what), reason && code(reason), element("span", { class: "why" }, text)));
  });
  const first = rows.splice(0, 8);
  return element("section", { class: "failures" },
    element("h2", {}, plural(first.length + rows.length, "failure"), element("small", {},
      run.summary.outcome === "completed" ? "the run went on and completed" : "")),
    element("ul", {}, first),
    rows.length > 0 && foldOut({}, `${rows.length} more`, () => element("ul", {}, rows)));
}

function note(run, event) {
  const reason = event.data.reason;
  const message = event.data.message;
  const line = reason ? [code(reason), " ", message || ""] : [event.line];
  // The line of an event without a code names who it was.
  const who = !reason ? "" : event.data.by ? ` by ${event.data.by}` : event.data.hook ? ` ${event.data.hook} at ${event.data.point}` : "";
  return element("div", { class: `note ${isBad(event) ? "failed" : event.type.split(".")[0]}` },
    element("p", {}, element("b", {}, event.type.replaceAll(/[._]/g, " ") + who), " ", line, " ", seq(run, event.seq)),
    reason && explain(run, reason));
}

function callBody(run, call) {
  const { answer } = call;
  const parts = shownArguments("asked with", call.arguments);
  if (exactText(given(call)) !== exactText(call.arguments)) {
    parts.push(...shownArguments(call.ran ? "ran with" : "what a person is asked about", given(call)));
  }
  parts.push(...call.notes.map((event) => note(run, event)));
  if (!answer) return [...parts, element("p", { class: "dim" }, "No answer of it is recorded.")];
  if (answer.ok) return [...parts, block("returned", answer.output)];
  const error = answer.error || {};
  parts.push(element("div", { class: "note failed" },
    element("p", {}, element("b", {}, "failed"), " ", error.reason && code(error.reason), " ",
      error.code && ["the tool's own code ", code(error.code)], " ", error.message),
    error.reason && explain(run, error.reason)));
  const shown = answer.output && answer.output.error;
  parts.push(block("what the model read", shown === undefined ? answer.output : shown));
  const stored = error.error_id && run.stored.get(error.error_id);
  if (stored) {
    const seen = stored.occurrences > 1 ? `, seen ${stored.occurrences} times in the session` : "";
    parts.push(block(`the whole error, ${number([...stored.text].length)} characters${seen}`, stored.text, "stored"));
  } else if (error.error_id) {
    parts.push(element("p", { class: "dim" }, `The whole error, ${error.error_id}, is no longer stored.`));
  }
  return parts;
}

function card(run, call) {
  const { answer } = call;
  const error = answer && !answer.ok && answer.error;
  const result = error ? error.message : answer ? pretty(answer.output) : said(call);
  const [args] = parted(given(call));
  const asked = call.notes.some((event) => event.type === "approval.requested");
  return foldOut({ id: `${run.prefix}call-${call.key}`, class: `call ${state(call)}`, "data-detail": run.prefix + call.key }, [
    element("span", { class: "mark" }, state(call) === "ok" ? "✓" : state(call) === "failed" ? "✗" : "…"),
    element("span", { class: "tool-name" }, call.name), error && error.reason && code(error.reason),
    asked && element("span", { class: "badge" }, "asked a person"),
    element("span", { class: "args", title: "arguments" }, brief(args)),
    element("span", { class: "brief", title: "result" }, result.slice(0, 300)),
    element("span", { class: "took" }, answer ? duration(answer.duration_ms) : "")],
  () => callBody(run, call));
}

function turnOf(run, turn) {
  const { answer, failed } = turn;
  const bad = turn.attempts.filter((each) => each.code !== null);
  const last = turn.attempts.at(-1);
  const tokens = turn.tokens[0] + turn.tokens[1] > 0
    && `${number(turn.tokens[0])} tokens in, ${number(turn.tokens[1])} out`;
  const about = [last && last.provider, last && duration(last.to - turn.from), tokens].filter(Boolean).join(" · ");
  return element("article", { id: `${run.prefix}turn-${turn.seq}`, class: failed ? "turn failed" : "turn", "data-detail": `${run.prefix}m${turn.call}` },
    element("h3", {}, `Turn ${turn.call}`, element("small", {}, about), seq(run, turn.seq)),
    bad.map((each) => element("p", { class: "note failed attempt" },
      element("b", {}, `attempt ${each.attempt} failed`), " ", code(each.code),
      each.status !== null && ` HTTP ${each.status}`, ` after ${duration(each.to - each.from)}`,
      each.wait > 0 && `, then a wait of ${duration(each.wait)}`, " ", seq(run, each.seq))),
    failed && element("div", { class: "note failed" },
      element("p", {}, element("b", {}, "model call failed"), " ", code(failed.reason), " ", failed.message),
      chain(failed.chain), explain(run, failed.reason)),
    answer && answer.thinking && foldOut({ class: "thinking" }, "thinking", () => block(null, answer.thinking, "prose")),
    answer && answer.text && element("div", { class: "says", dir: "auto" }, answer.text),
    turn.open && element("p", { class: "dim" }, "No answer of the model is recorded."),
    turn.calls.map((call) => [card(run, call), (call.dispatches || []).map((dispatch) => below(run, dispatch))]),
    turn.notes.map((event) => note(run, event)));
}

function record(run) {
  const row = (event) => foldOut({ id: `${run.prefix}seq-${event.seq}`, class: isBad(event) ? "event failed" : "event" }, [
    element("span", { class: "n" }, String(event.seq)),
    element("span", { class: "when" }, `${((event.ms - run.start) / 1000).toFixed(3)} s`),
    element("span", { class: "type" }, event.type), element("span", { class: "brief" }, event.line)],
  () => {
    const { line, ms, ...whole } = event;
    return block(null, whole);
  });
  return foldOut({ id: `${run.prefix}record`, class: "record" },
    `All ${plural(run.events.length, "event")}, as they were recorded`, () => run.events.map(row));
}

// What became of a run.
function stateOf(run) {
  return (run.summary.outcome || run.summary.state).replaceAll("_", " ");
}

// Where each run below hangs: how it is opened, whose content is made when that happens.
const places = new Map();

// Fills what a run below stands in, from the top down.
function openRun(prefix) {
  const run = places.get(prefix);
  if (!run) return;
  if (run.caller.prefix) openRun(run.caller.prefix);
  document.getElementById(`${run.prefix}run`)?.fill();
}

// A run below, folded, with its own use and failures; what is in it is made when it is opened.
function below(run, dispatch) {
  const { child } = dispatch;
  if (!child) {
    const { returned } = dispatch;
    const failed = returned && returned.outcome === "failed";
    const end = returned ? ["; it ", element("b", {}, returned.outcome.replaceAll("_", " ")), " ", returned.reason && code(returned.reason), " ", seq(run, dispatch.end.seq)] : "";
    const elsewhere = element("p", { class: "dim" }, element("b", {}, dispatch.operator), ": run ", code(dispatch.run), " has no record in this page", end);
    return element("div", { class: failed ? "note failed" : "note operator" }, elsewhere, failed && returned.reason && explain(run, returned.reason));
  }
  const { usage, outcome, state } = child.summary;
  const failed = child.failures.length;
  const facts = [duration(child.end - child.start), plural(usage.model_attempts, "model call"), plural(usage.total_tokens, "token"),
    usage.cost_usd !== null && `$${+usage.cost_usd.toFixed(4)}`, failed > 0 && plural(failed, "failure"),
    dispatch.attempts > 1 && plural(dispatch.attempts, "attempt")].filter(Boolean).join(" · ");
  places.set(child.prefix, child);
  return foldOut({ id: `${child.prefix}run`, class: "below" }, [
    element("b", {}, dispatch.operator), " ",
    element("span", { class: `pill ${OUTCOMES[outcome || state] || "wait"}` }, stateOf(child)),
    element("small", {}, facts)], () => [
    element("p", { class: "ids" }, "run ", code(child.summary.run), " dispatched ", seq(run, dispatch.seq)),
    ...inside(child)]);
}

// What a run was asked and what happened in it.
function inside(run) {
  return [ending(run),
    element("div", { class: "asked" }, element("h4", {}, "asked"), element("div", { class: "says", dir: "auto" }, run.began ? run.began.input : "")),
    failures(run), run.before.map((event) => note(run, event)), run.turns.map((turn) => turnOf(run, turn)), alone(run), record(run)]
    .flat().filter(Boolean);
}

// The runs below that no call asked for.
function alone(run) {
  const asked = new Set(run.calls.flatMap((call) => call.dispatches || []));
  return run.dispatches.filter((dispatch) => !asked.has(dispatch)).map((dispatch) => below(run, dispatch));
}

// Opens what an id names, and everything around it, and goes there.
function reveal(id) {
  const prefix = (/^r\d+-/.exec(id) || [""])[0];
  if (prefix) openRun(prefix);
  if (id.startsWith(`${prefix}seq-`)) document.getElementById(`${prefix}record`)?.fill();
  const target = document.getElementById(id);
  if (!target) return;
  for (let at = target; at; at = at.parentElement) {
    if (at.fill) at.fill();
    if (at.tagName === "DETAILS") at.open = true;
  }
  target.scrollIntoView({ block: "start" });
  for (const old of document.querySelectorAll(".here")) old.classList.remove("here");
  target.classList.add("here");
}

// `#seq-4` shows an event, `#open-c1` clicks the bar of a call.
function follow() {
  const id = location.hash.slice(1);
  if (!id.startsWith("open-")) return reveal(id);
  const wanted = [...document.querySelectorAll("[data-call]")].find((each) => each.dataset.call === id.slice(5));
  if (wanted) wanted.click();
}

function show(run) {
  const input = run.began ? run.began.input : "";
  const definition = run.began ? run.began.agent.definition : null;
  const instructions = definition && definition.instructions;
  document.title = `${run.summary.agent}: ${run.summary.run}`;
  fill(document.getElementById("page"), [
    header(run), ending(run),
    element("section", { class: "asked" }, element("h2", {}, "Asked"), element("div", { class: "says", dir: "auto" }, input),
      instructions && foldOut({}, "instructions of the agent", () => block(null, instructions, "prose"))),
    timeline(run), failures(run),
    element("section", { class: "turns" }, element("h2", {}, "What happened"),
      run.before.map((event) => note(run, event)), run.turns.map((turn) => turnOf(run, turn)), alone(run)),
    definition && foldOut({ class: "record" }, "The agent's definition", () => block(null, definition)),
    record(run),
  ]);
  addEventListener("hashchange", follow);
  follow();
}

show(foldTree(parseExact(document.getElementById("data").textContent)));
