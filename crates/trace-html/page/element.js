// Elements. Whatever the record says goes in as text, never as markup.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  return fill(made, children);
}

// Appends what is there, one at a time: a call takes only so many arguments.
function fill(made, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false && child !== "") made.append(child);
  }
  return made;
}

// A `details` whose content is made when it is opened for the first time.
function foldOut(attributes, summary, content) {
  const made = element("details", attributes, element("summary", {}, summary));
  made.fill = () => {
    if (content) fill(made, [content()]);
    content = null;
  };
  made.addEventListener("toggle", () => made.open && made.fill());
  return made;
}

function pretty(value) {
  return typeof value === "string" ? value : exactText(value, 2);
}

function block(label, value, kind) {
  return element("div", { class: "block" }, label && element("h4", {}, label),
    element("pre", { class: kind, dir: "auto", tabindex: "0" }, pretty(value)));
}

function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${+(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  const s = Math.round(ms / 1000);
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  const min = Math.round(s / 60);
  if (min < 2880) return `${Math.floor(min / 60)} h ${min % 60} min`;
  return `${Math.floor(min / 1440)} days ${Math.floor((min % 1440) / 60)} h`;
}

function number(count) {
  return Number(count).toLocaleString("en-US");
}

function plural(count, word) {
  return `${number(count)} ${word}${count === 1 ? "" : "s"}`;
}

function code(text) {
  return element("code", { class: "code" }, text);
}

// A number that the script would write differently, with its text in the record.
class Exact extends Number {
  constructor(text) {
    super(text);
    this.text = text;
  }
}

// Marks the text of a number among strings; no record can know it.
const MARK = `exact${crypto.getRandomValues(new Uint32Array(4)).join("x")}:`;

// Reads JSON whose numbers keep their text.
function parseExact(json) {
  const token = /"|-?[0-9][0-9.eE+-]*/g;
  const parts = [];
  let copied = 0;
  for (let found = token.exec(json); found; found = token.exec(json)) {
    const [text] = found;
    if (text === '"') {
      token.lastIndex = stringEnd(json, found.index);
    } else if (String(Number(text)) !== text) {
      parts.push(json.slice(copied, found.index), `"${MARK}${text}"`);
      copied = token.lastIndex;
    }
  }
  const exact = (key, value) =>
    typeof value === "string" && value.startsWith(MARK) ? new Exact(value.slice(MARK.length)) : value;
  return JSON.parse(parts.join("") + json.slice(copied), exact);
}

// Returns where the string that begins at `start` ends. A pattern for it would recurse once for each escape.
function stringEnd(json, start) {
  let at = start + 1;
  while (at < json.length && json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at + 1;
}

// Writes JSON with the numbers as they were recorded.
function exactText(value, indent) {
  const marked = JSON.stringify(value, (key, each) => each instanceof Exact ? MARK + each.text : each, indent);
  return marked && marked.replace(new RegExp(`"${MARK}([^"]*)"`, "g"), "$1");
}
