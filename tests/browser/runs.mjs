// Makes pages of real runs, with the command itself.

import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

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
