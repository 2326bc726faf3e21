// Makes pages of real runs, with the command itself.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const BACKSTOP = process.env.BACKSTOP;

// What no text of a model or a tool may do.
export const HOSTILE = `<script>document.title = "hacked"</script><img src=x onerror="document.title='hacked'">`;

const toml = (value) => JSON.stringify(value);

function turn(calls, text) {
  const list = calls.map(({ id, name, ...given }) => {
    const fields = Object.entries(given).map(([key, value]) => `${key} = ${toml(value)}`);
    return `{ id = "${id}", name = "${name}", arguments = { ${fields.join(", ")} } }`;
  });
  return `[[model]]\ntext = ${toml(text ?? "")}\ntool_calls = [${list.join(", ")}]\n`;
}

const answer = (text) => `[[model]]\ntext = ${toml(text)}\n`;

// Runs an agent and returns where its page is.
function page({ script, file, code = 0 }) {
  const folder = mkdtempSync(join(tmpdir(), "backstop-page-"));
  const variables = { PATH: process.env.PATH, HOME: folder, BACKSTOP_STORE: "sqlite:runs.db" };
  const options = { cwd: folder, env: variables, encoding: "utf8", stdio: "pipe" };
  writeFileSync(join(folder, "script.toml"), script.join(""));
  writeFileSync(join(folder, "notes.md"), "one\ntwo\nthree\n");
  const model = `[model]\nprovider = "script"\nscript = "script.toml"\n`;
  writeFileSync(join(folder, "agent.toml"), `[agent]\nname = "browser"\ninput = "go"\n${model}${file}`);
  const ran = spawnSync(BACKSTOP, ["run", "agent.toml"], options);
  if (ran.status !== code) throw new Error(`the run ended with ${ran.status}: ${ran.stderr}`);
  const listed = execFileSync(BACKSTOP, ["runs", "--json"], options);
  const { run } = JSON.parse(listed.split("\n")[0]);
  execFileSync(BACKSTOP, ["trace", run, "--html", "page.html"], options);
  return pathToFileURL(join(folder, "page.html")).href;
}

const LISTS = `[[tools]]\nkind = "builtin"\nname = "fs_list"\n[agent.policy]\ngrant = ["fs:read:./**"]\n`;
const LIMITS = `max_iterations = 300\nmax_observation_steps = "off"\nmax_repeated_batch_steps = "off"`;
const BUDGET = `[agent.budget]\nmax_model_calls = 300\nmax_tool_calls = 1000\n`;

const list = (n) => ({ id: `c${n}`, name: "fs_list", path: ".", pattern: `pattern-${n}-*` });
const from = (first, count) => Array.from({ length: count }, (_, at) => list(first + at));

// Each run is made once.
const made = new Map();
const once = (make) => () => {
  if (!made.has(make)) made.set(make, make());
  return made.get(make);
};

// 200 calls, two in each turn.
export const pairs = once(() => {
  const turns = Array.from({ length: 100 }, (_, at) => turn(from(2 * at, 2), `turn ${at}`));
  return page({ script: [...turns, answer("done")], file: `[agent.limits]\n${LIMITS}\n${BUDGET}${LISTS}` });
});

// 200 calls in batches of 25, of which two run at once.
export const batches = once(() => {
  const turns = Array.from({ length: 8 }, (_, at) => turn(from(25 * at, 25), `turn ${at}`));
  const limits = `[agent.limits]\n${LIMITS}\nmax_concurrent_tools = 2\n`;
  return page({ script: [...turns, answer("done")], file: `${limits}${BUDGET}${LISTS}` });
});

// Text that wants to be markup, long words, a call that fails.
export const hostile = once(() => {
  const calls = [
    { id: "c1", name: "fs_list", path: ".", pattern: HOSTILE },
    { id: "c2", name: "fs_list", path: `./${"long".repeat(80)}` },
    { id: "c3", name: `no-such-tool-${"x".repeat(60)}`, word: HOSTILE },
  ];
  return page({ script: [turn(calls, HOSTILE), answer(`${HOSTILE} ${"word".repeat(200)}`)], file: LISTS });
});

// A call that waits for a person, with a diff.
export const waiting = once(() => {
  const write = { id: "c1", name: "fs_write", path: "notes.md", content: `one\n2\nthree\n${HOSTILE}\n` };
  const file = `[[tools]]\nkind = "builtin"\nname = "fs_write"\n[agent.policy]\ngrant = ["fs:write:./**"]\n`;
  return page({ script: [turn([write]), answer("done")], file, code: 4 });
});

// A run that dispatched two others at once: one that answered after a failed call, and one that failed. The
// runs below are real; the record of their caller is written here around them.
export const tree = once(() => {
  const calls = [{ id: "c1", name: "fs_list", path: "missing", pattern: HOSTILE }];
  const url = page({ script: [turn(calls, "I look."), answer("the child answered")], file: LISTS });
  const whole = readFileSync(fileURLToPath(url), "utf8");
  const [before, rest] = whole.split(`id="data">`);
  const end = rest.indexOf("</script>");
  const [json, after] = [rest.slice(0, end), rest.slice(end)];
  const { codes, ...child } = JSON.parse(json);
  const failing = structuredClone(child);
  failing.summary.run = "run_failing";
  Object.assign(failing.summary, { outcome: "failed", reason: "provider.timeout", state: "failed" });
  const ended = failing.events.at(-1);
  ended.type = "run.failed";
  ended.data = { reason: "provider.timeout", message: "no answer came", chain: ["no answer came"], usage: child.summary.usage };
  const top = structuredClone(child);
  top.summary.run = "run_top";
  const [first, ...events] = top.events.filter((event) => ["run.started", "model.requested", "model.attempted"].includes(event.type)).slice(0, 3);
  const asked = ["a", "b"].map((id) => ({ id, name: "hosts", arguments: { input: id } }));
  const of = (type, data) => ({ ...ended, type, data });
  const runs = { a: child.summary.run, b: "run_failing" };
  const ends = { a: ["completed", null], b: ["failed", "provider.timeout"] };
  const { usage } = child.summary;
  const dispatch = (id) => [
    of("tool.requested", { call_id: id, tool: "hosts", arguments: { input: id }, execution: `x${id}` }),
    of("operator.dispatched", { operator: "hosts", run: runs[id], attempt: 1, call_id: id, step: null, input_digest: "", allowance: { model_calls: 3 } })];
  const back = (id) => [
    of("operator.returned", { operator: "hosts", run: runs[id], outcome: ends[id][0], reason: ends[id][1], usage }),
    of("tool.responded", { call_id: id, tool: "hosts", ok: id === "a", output: id, duration_ms: 5, error: id === "a" ? null : { reason: "tool.execution_failed", message: "it failed" } })];
  top.events = [first, ...events,
    of("model.responded", { call: 1, model: "m", text: "", thinking: null, tool_calls: asked, stop_reason: "tool_use", usage: { input_tokens: 0, output_tokens: 0, cached_tokens: 0 } }),
    ...dispatch("a"), ...dispatch("b"),
    of("operator.waiting", { operator: "hosts", run: runs.b, for: "budget", approvals: [] }),
    of("budget.granted", { run: runs.b, allowance: { model_calls: 1 } }),
    ...back("a"), ...back("b"),
    of("run.finished", { outcome: "completed", reason: null, message: null, output: "done", usage })]
    .map((event, at) => ({ ...event, run: "run_top", seq: at + 1 }));
  top.lines = top.events.map((event) => event.type);
  const data = JSON.stringify({ ...top, below: [child, failing], codes }).replaceAll("<", "\\u003c");
  const folder = mkdtempSync(join(tmpdir(), "backstop-tree-"));
  writeFileSync(join(folder, "page.html"), `${before}id="data">${data}${after}`);
  return pathToFileURL(join(folder, "page.html")).href;
});

// Rewrites the data of a page, and returns where the new page is.
function rewritten(url, edit) {
  const whole = readFileSync(fileURLToPath(url), "utf8");
  const [before, rest] = whole.split(`id="data">`);
  const end = rest.indexOf("</script>");
  const folder = mkdtempSync(join(tmpdir(), "backstop-rewritten-"));
  writeFileSync(join(folder, "page.html"), `${before}id="data">${edit(rest.slice(0, end))}${rest.slice(end)}`);
  return pathToFileURL(join(folder, "page.html")).href;
}

// Numbers as no script writes them.
export const NUMBERS = `{"amount":3.10,"id":12345678901234567890,"rate":0.1234567890123456789}`;

// A call whose arguments have them.
export const numbers = once(() => {
  const url = page({ script: [turn([{ id: "c1", name: "fs_list", path: "numbers" }]), answer("done")], file: LISTS });
  return rewritten(url, (json) => json.replaceAll(`"path":"numbers"`, `"path":${NUMBERS}`));
});

// A workflow that collects a failed step, which kept no record.
export const steps = once(() => {
  const url = page({ script: [answer("done")], file: LISTS });
  return rewritten(url, (json) => {
    const data = JSON.parse(json);
    const [first, last] = [data.events[0], data.events.at(-1)];
    const of = (type, more) => ({ ...last, type, data: more });
    const step = { operator: "pay", run: "run_step" };
    const { usage } = data.summary;
    const returned = { ...step, outcome: "failed", reason: "operator.non_retryable", usage };
    data.events = [first,
      of("operator.dispatched", { ...step, attempt: 1, call_id: null, step: "pay/1", input_digest: "", allowance: {} }),
      of("operator.returned", returned), last].map((event, at) => ({ ...event, seq: at + 1 }));
    data.lines = data.events.map((event) => event.type);
    return JSON.stringify(data).replaceAll("<", "\\u003c");
  });
});

// A record of more events than a call takes arguments.
export const long = once(() => rewritten(page({ script: [answer("done")], file: LISTS }), (json) => {
  const data = JSON.parse(json);
  const noted = { ...data.events.at(-1), type: "warning", data: { message: "late" } };
  const more = Array(130_000).fill(noted);
  data.events = [data.events[0], ...more].map((event, at) => ({ ...event, seq: at + 1 }));
  data.lines = data.events.map(() => "late");
  return JSON.stringify(data).replaceAll("<", "\\u003c");
}));
