// The timeline: a row for the model, a lane for each tool call that runs beside others.

const LEAST = 0.2; // the least width of a tool's bar, in percent
const LAST_TICK = 87; // where the last tick may stand, in percent: its text is behind it
const GAP = 0.07; // the most a gap takes of the width

// Maps time to percent. Long gaps are squeezed, so that the work beside them can be seen.
function scale(run) {
  const idle = run.gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const work = Math.max(run.end - run.start - idle, 1);
  const most = (work * GAP) / (1 - Math.min(GAP * run.gaps.length, 0.6));
  const cut = (gap) => Math.max(gap.to - gap.from - most, 0);
  const cuts = run.gaps.filter((gap) => cut(gap) > 0);
  const width = Math.max(run.end - run.start - cuts.reduce((sum, gap) => sum + cut(gap), 0), 1);
  return {
    squeezed: cuts.length > 0,
    at(ms) {
      let off = 0;
      for (const gap of cuts) {
        const inside = Math.min(Math.max(ms - gap.from, 0), gap.to - gap.from);
        off += inside * (cut(gap) / (gap.to - gap.from));
      }
      return Math.min(Math.max(((ms - run.start - off) / width) * 100, 0), 100);
    },
    // Even moments, outside what was squeezed.
    ticks() {
      const step = nice(width / 8);
      const ticks = [];
      let from = run.start;
      for (const end of [...cuts.map((gap) => gap.from), run.end]) {
        for (let ms = Math.ceil((from - run.start) / step) * step; run.start + ms <= end; ms += step) {
          const place = this.at(run.start + ms);
          if (place < LAST_TICK) ticks.push({ place, text: duration(ms) });
        }
        const gap = cuts.find((gap) => gap.from === end);
        if (gap) from = gap.to;
      }
      return ticks;
    },
  };
}

function nice(ms) {
  for (const step of [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 3e4]) {
    if (step >= ms) return step;
  }
  const minute = 60e3;
  for (const step of [1, 2, 5, 10, 20, 30, 60, 120, 360, 720]) if (step * minute >= ms) return step * minute;
  return Math.ceil(ms / (1440 * minute)) * 1440 * minute;
}

// Did two calls of one turn run at the same time? What is recorded of them is cut to milliseconds, and
// an answer stands in the record a little after its tool has ended.
function overlap(a, b) {
  const end = (call) => Math.max(call.to, call.from + 1);
  const shared = Math.min(end(a), end(b)) - Math.max(a.from, b.from);
  return shared > Math.min(end(a) - a.from, end(b) - b.from) / 2;
}

// Puts calls into the first lane that is free, whatever the width of their bars: there are as many lanes
// as calls ran at the same time. Those of another turn never did.
function lanes(run, place) {
  const limits = run.began && run.began.agent.definition && run.began.agent.definition.limits;
  const most = (limits && limits.max_concurrent_tools) || Infinity;
  const rows = [];
  const shown = run.calls.filter((call) => call.from !== undefined);
  shown.sort((a, b) => a.from - b.from);
  for (const call of shown) {
    const left = Math.min(place.at(call.from), 100 - LEAST);
    const width = Math.max(place.at(call.to) - left, LEAST);
    const isFree = (row) => row.last.turn !== call.turn || !overlap(row.last, call);
    let row = rows.find(isFree);
    if (!row && rows.length < most) rows.push((row = { bars: [] }));
    row ??= rows.reduce((first, each) => (each.last.to < first.last.to ? each : first));
    row.last = call;
    row.bars.push({ call, left, width });
  }
  return rows;
}

function hasWaits(run) {
  return run.turns.some((turn) => turn.attempts.some((each) => each.wait > 0)) || children(run).some(hasWaits);
}

function bar(kind, left, width, attributes, text) {
  const style = `left:${left.toFixed(3)}%;width:${width.toFixed(3)}%`;
  return element(attributes.onclick ? "button" : "span",
    { class: `bar ${kind}`, style, type: attributes.onclick && "button", ...attributes }, text);
}

const WHY = { approval: "waits for a person", budget: "waits for budget", parked: "parked", stopped: "stopped" };

// Draws the rows of a run on a scale: model, tools, and a group of rows for each run below.
function rowsOf(run, place) {
  const rows = [];
  const row = (label, hint, bars, kind) => rows.push(element("div", { class: kind ? `row ${kind}` : "row" },
    element("span", { class: "label", title: hint }, label), element("div", { class: "track" }, bars)));

  const model = [];
  const span = (from, to) => [place.at(from), Math.max(place.at(to) - place.at(from), 0)];
  for (const turn of run.turns) {
    const key = `m${turn.call}`;
    const more = { "data-call": run.prefix + key, onclick: () => reveal(`${run.prefix}turn-${turn.seq}`) };
    for (const each of turn.attempts) {
      const failed = each.code !== null;
      const title = `model call ${turn.call}, attempt ${each.attempt}: ${failed ? each.code : "answered"}, ${duration(each.to - each.from)}`;
      model.push(bar(failed ? "model failed" : "model", ...span(each.from, each.to),
        { ...more, title, "aria-label": title }, String(turn.call)));
      if (each.wait) {
        const title = `waits ${duration(each.wait)} before the next attempt`;
        model.push(bar("wait", ...span(each.to, each.to + each.wait), { title }));
      }
    }
    if (turn.open) {
      model.push(bar("model open", ...span(turn.open.from, turn.open.to),
        { ...more, title: `model call ${turn.call}: no answer recorded` }, String(turn.call)));
    }
  }
  row("model", "each attempt to get an answer from the model", model);

  const tools = lanes(run, place);
  tools.forEach((lane, index) => {
    const bars = lane.bars.map(({ call, left, width }) => {
      const title = `${call.name} ${brief(given(call))}: ${said(call)}, ${duration(call.to - call.from)}`;
      const kind = `tool ${state(call)}`;
      return bar(kind, left, width,
        { "data-call": run.prefix + call.key, title, "aria-label": title, onclick: () => reveal(`${run.prefix}call-${call.key}`) }, call.name);
    });
    for (const { call } of lane.bars) {
      for (const wait of call.waits) {
        bars.push(bar("wait", ...span(wait.from, wait.to), { title: `waits ${duration(wait.to - wait.from)}, then tries again` }));
      }
    }
    row(index === 0 ? "tools" : "", "tool calls; those that ran at the same time are below each other", bars, "lane");
  });

  for (const child of children(run)) {
    const group = foldOut({ class: "group", open: true }, `${child.name}: ${stateOf(child)}, ${duration(child.end - child.start)}`,
      () => rowsOf(child, place));
    group.fill();
    rows.push(group);
  }
  return rows;
}

function timeline(run) {
  const place = scale(run);
  const rows = rowsOf(run, place);
  const span = (from, to) => [place.at(from), Math.max(place.at(to) - place.at(from), 0)];
  const gaps = run.gaps.map((gap) => {
    const why = WHY[gap.why] || gap.why;
    return bar(`gap ${gap.why}`, ...span(gap.from, gap.to), { title: `${why}: ${duration(gap.to - gap.from)}` },
      element("i", {}, `${why} ${duration(gap.to - gap.from)}`));
  });
  const ticks = place.ticks().map((tick) =>
    element("span", { class: "tick", style: `left:${tick.place.toFixed(3)}%` }, tick.text));
  const key = (kind, text) => element("span", { class: "key" }, element("b", { class: `bar ${kind}` }), text);
  return element("section", { class: "timeline" },
    element("div", { class: "chart" },
      element("div", { class: "row axis" }, element("span", { class: "label" }), element("div", { class: "track" }, ticks)),
      rows,
      gaps.length > 0 && element("div", { class: "gaps" }, gaps)),
    element("p", { class: "legend" },
      key("model", "model answers"), key("tool ok", "tool call"), key("failed", "failed"),
      hasWaits(run) && key("wait", "waits before another attempt"),
      gaps.length > 0 && key("gap", place.squeezed ? "waits, or stopped (drawn shorter)" : "waits, or stopped"),
      element("span", {}, "Click a bar to read what happened.")));
}
