// Elements. Whatever the record says goes in as text, never as markup.

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false && child !== "") made.append(child);
  }
  return made;
}

// A `details` whose content is made when it is opened for the first time.
function foldOut(attributes, summary, content) {
  const made = element("details", attributes, element("summary", {}, summary));
  const fill = () => {
    if (content) made.append(...[content()].flat());
    content = null;
  };
  made.fill = fill;
  made.addEventListener("toggle", () => made.open && fill());
  return made;
}

function pretty(value) {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
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

// Numbers too large for the script keep their digits.
function exactly(key, value, context) {
  const large = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return large && JSON.rawJSON && context && context.source ? JSON.rawJSON(context.source) : value;
}
