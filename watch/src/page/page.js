"use strict";
// Asks the server once a second and shows what it says. Text of the server goes into the page
// through `esc` or as text, never as markup.
const $ = (id) => document.getElementById(id);
const esc = (text) => String(text).replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt(0)};`);
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

// Numbers as `perdura status` writes them.
const short = (value) => {
  const text = value.toFixed(value >= 100 ? 1 : 2);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
};
const scaled = (value, step, units) => {
  let at = 0;
  while (value >= step && at < units.length - 1) { value /= step; at += 1; }
  return `${short(value)} ${units[at]}`;
};
const bytes = (n) => known(n) ? scaled(n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) : "–";
const rate = (n) => known(n) ? `${scaled(n, 1000, ["B", "KB", "MB", "GB", "TB"])}/s` : "–";
const count = (n) => known(n) ? Math.round(n).toLocaleString("en") : "–";
const perSecond = (n) => {
  if (!known(n)) return "–";
  return n > 0 && n < 10 ? `${short(n)}/s` : `${count(n)}/s`;
};
const time = (s) => {
  if (!known(s)) return "–";
  if (s >= 60) {
    const parts = [[Math.floor(s / 86400), "d"], [Math.floor(s / 3600) % 24, "h"],
      [Math.floor(s / 60) % 60, "m"], [Math.floor(s) % 60, "s"]];
    return parts.filter(([n]) => n > 0).slice(0, 2).map(([n, unit]) => n + unit).join("");
  }
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6], ["ns", 1e-9]]) {
    if (s >= scale) return short(s / scale) + unit;
  }
  return "0s";
};
const micros = (us) => known(us) ? time(us / 1e6) : "–";
const percent = (part) => known(part) ? `${short(part * 100)} %` : "–";
const level = (part, near) => part > 1 ? "bad" : part >= near ? "near" : "good";

const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };
const setHtml = (node, html) => {
  if (node.shown !== html) { node.innerHTML = html; node.shown = html; }
};

// The theme: as the system says, or as the reader has chosen.
const themes = ["system", "light", "dark"];
let theme = "system";
try { theme = localStorage.getItem("perdura-theme") || "system"; } catch { /* private window */ }
const wear = () => {
  if (!themes.includes(theme)) theme = "system";
  document.documentElement.dataset.theme = theme;
  $("theme").textContent = `Theme: ${theme}`;
};
$("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  try { localStorage.setItem("perdura-theme", theme); } catch { /* private window */ }
  wear();
});
wear();

// The verdict.
function showVerdict(now) {
  const { status, power } = now;
  let kind = "good", head = "The promise holds.", why = [];
  if (!status) {
    [kind, head] = ["near", "This server makes no promise."];
  } else if (!status.holds) {
    [kind, head, why] = ["bad", "THE PROMISE IS BROKEN", [...status.broken_by]];
  }
  if (status) {
    if (power.source_lost) why.push(`A source of warnings does not answer: ${power.told_by || "unknown"}.`);
    if (power.state && power.state !== "steady") {
      why.push(`The power is ${power.state}: ${power.told_by || ""}`);
    }
    if (power.battery_lost) why.push("Nothing can be learnt of the battery.");
    if (!status.holder) why.push("No holder: the memory dies with the server.");
    if (why.length > 0 && kind === "good") kind = "near";
  }
  if (now.loading) why.push(`Loading: ${bytes(now.loading.done)} of ${bytes(now.loading.wanted)} are in memory.`);
  const list = why.length ? `<ul>${why.map((text) => `<li>${esc(text)}</li>`).join("")}</ul>` : "";
  $("verdict").className = `verdict ${kind}`;
  setHtml($("verdict"), `<p>${esc(head)}</p>${list}`);
}

// The gauge: half a circle from nothing to the warning.
const polar = (part, radius) => {
  const angle = Math.PI * (1 - Math.min(Math.max(part, 0), 1));
  return [(150 + radius * Math.cos(angle)).toFixed(1), (140 - radius * Math.sin(angle)).toFixed(1)];
};
const arc = (part) => {
  const [x, y] = polar(part, 110);
  return `M40 140A110 110 0 0 1 ${x} ${y}`;
};
function showGauge(status) {
  if (!status) return;
  const part = status.warning_s > 0 ? status.time_to_safe_s / status.warning_s : 0;
  const promised = status.warning_s > 0 ? status.promised_s / status.warning_s : 0;
  const kind = level(part, 0.9);
  const [x1, y1] = polar(promised, 96), [x2, y2] = polar(promised, 124);
  const [tx, ty] = polar(promised, 134);
  const side = promised < 0.5 ? "end" : "start";
  const words = `${time(status.time_to_safe_s)} of ${time(status.warning_s)}`;
  setHtml($("gauge"), `<svg viewBox="0 0 300 170" aria-hidden="true">
    <path class="track" d="${arc(1)}" fill="none" stroke-width="18"></path>
    ${part > 0.002 ? `<path class="${kind}" d="${arc(part)}" fill="none" stroke-width="18"></path>` : ""}
    <line class="mark" x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}"></line>
    <text class="tick" x="${tx}" y="${ty}" text-anchor="${side}">full</text>
    <text class="value" x="150" y="118" text-anchor="middle">${esc(time(status.time_to_safe_s))}</text>
    <text class="of" x="150" y="138" text-anchor="middle">of ${esc(time(status.warning_s))}</text>
    <text class="tick" x="40" y="162" text-anchor="middle">0s</text>
    <text class="tick" x="260" y="162" text-anchor="middle">${esc(time(status.warning_s))}</text></svg>`);
  $("gauge").setAttribute("aria-label", `${words}; a full budget takes ${time(status.promised_s)}`);
  setText($("gauge-note"), `At most ${time(status.time_to_safe_max_s)} so far. A full budget is flushed in `
    + `${time(status.promised_s)} (the mark), ${time(status.reserve_s)} of them kept back.`);
}

// The cards.
function cards(now) {
  const n = now.numbers, r = now.rates_per_s, s = now.status, p = now.power;
  const list = [];
  if (s) {
    const part = s.budget_bytes > 0 ? s.dirty_bytes / s.budget_bytes : 0;
    const shrunk = known(n.budget_now_bytes) && n.budget_now_bytes < s.budget_bytes;
    list.push({ name: "Dirty", figure: bytes(s.dirty_bytes), part, near: 0.95,
      note: `of a budget of ${bytes(s.budget_bytes)}${shrunk ? `; now ${bytes(n.budget_now_bytes)}, because the log is nearly full` : ""}` });
  }
  list.push({ name: "Flush rate", figure: rate(r.flushed_bytes),
    note: `to the SSD now; ${rate(r.dirtied_bytes)} become dirty` });
  if (s) {
    list.push({ name: "Proven rate", figure: rate(s.proven_rate_bytes_per_s),
      note: n.observed_rate_bytes_per_s > 0 ? `${rate(n.observed_rate_bytes_per_s)} observed` : "not observed yet" });
  }
  list.push({ name: "Stalls", figure: perSecond(r.stalls), kind: r.stalls > 0 ? "near" : "",
    note: `writers waited ${count(n.stalls)} times, ${time(n.stall_ns / 1e9)} together, ${time(n.stall_ns_max / 1e9)} the longest` });
  if (s) {
    list.push({ name: "Last checkpoint", figure: known(s.last_checkpoint_s) ? `${time(s.last_checkpoint_s)} ago` : "none",
      note: known(s.last_checkpoint_s) ? "an unwarned loss goes back to it" : "since the image was opened" });
    list.push({ name: "Holder", figure: s.holder ? "yes" : "none", kind: s.holder ? "" : "near",
      note: s.holder ? "keeps the memory if the server dies" : "memory dies with the server" });
  }
  list.push({ name: "Power", figure: p.state || "unknown",
    kind: p.state === "steady" ? "" : p.state === "on-battery" ? "near" : "bad",
    note: [known(p.left_s) ? `${time(p.left_s)} left` : "", p.told_by && p.told_by !== "no warning" ? p.told_by : "",
      known(p.battery_s) ? `the battery lasts ${time(p.battery_s)}` : "",
      p.demand_met ? "" : `demands ${p.demand}, not met yet`].filter(Boolean).join("; ") || "no warning" });
  const memory = n.maxmemory > 0 ? n.used_memory / n.maxmemory : 0;
  list.push({ name: "Memory", figure: bytes(n.used_memory), part: memory, near: 0.9,
    note: `of ${bytes(n.maxmemory)}; ${now.eviction || "noeviction"}${n.evicted_keys > 0 ? `, ${count(n.evicted_keys)} evicted` : ""}` });
  list.push({ name: "Keys", figure: count(now.keys), note: `${count(n.expired_keys)} have expired` });
  list.push({ name: "Commands", figure: perSecond(r.commands),
    note: `${rate(r.received_bytes)} in, ${rate(r.sent_bytes)} out` });
  list.push({ name: "Clients", figure: count(n.connected_clients),
    note: `of ${count(n.maxclients)}; ${count(n.blocked_clients)} wait` });
  return list;
}
function showCards(now) {
  setHtml($("cards"), cards(now).map((card) => {
    const kind = card.kind !== undefined ? card.kind : card.part === undefined ? "" : level(card.part, card.near);
    const bar = card.part === undefined ? "" : `<progress class="${kind}" max="1" value="${Math.min(card.part, 1)}"`
      + ` aria-label="${esc(card.name)}: ${percent(card.part)}"></progress>`;
    return `<li class="card"><h3>${esc(card.name)}</h3><div class="figure ${kind === "good" ? "" : kind}">`
      + `${esc(card.figure)}</div>${bar}<p class="note">${esc(card.note)}</p></li>`;
  }).join(""));
}

// The curves. Each has a title, what it shows, and how a value is written.
const CURVES = [
  { id: "safe", title: "Time to be safe", show: time,
    lines: [["time_to_safe_s", "time to be safe"], ["warning_s", "warning", "dashed"]] },
  { id: "dirty", title: "Dirty, of the budget", show: bytes,
    lines: [["dirty_bytes", "dirty"], ["budget_now_bytes", "budget", "dashed"]] },
  { id: "flush", title: "Flush rate", show: rate,
    lines: [["flushed_bytes_per_s", "written to the SSD"], ["dirtied_bytes_per_s", "became dirty"]] },
  { id: "stalls", title: "Time that writers waited, of all time", show: percent,
    lines: [["stalled_share", "waiting; above 100 %: several"]] },
  { id: "latency", title: "Latency of commands, in the server", show: micros, isLog: true,
    lines: [["p50_us", "p50"], ["p99_us", "p99"]] },
  { id: "commands", title: "Commands", show: perSecond, lines: [["commands_per_s", "commands a second"]] },
  { id: "memory", title: "Memory", show: bytes, lines: [["memory_used_bytes", "used"]] },
  { id: "checkpoint", title: "Age of the last checkpoint", show: time,
    lines: [["checkpoint_age_s", "age"]] },
];
const WIDTH = 300, HEIGHT = 150, LEFT = 58, RIGHT = 8, TOP = 10, BOTTOM = 22;
const past = { unix_s: [] };
let span = 3600, isChosen = false, cursor = null;
$("charts").innerHTML = CURVES.map((curve, at) => `<figure><figcaption><b id="t-${curve.id}">${esc(curve.title)}</b>`
  + curve.lines.map(([, name, style], n) => `<span class="k${n} ${style || ""}">${esc(name)}</span>`).join("")
  + `</figcaption><div data-curve="${at}"></div><output id="o-${curve.id}"></output></figure>`).join("");

// A round number that is not less. Sizes are round in their own unit.
function niceTop(value, base) {
  if (!(value > 0)) return 1;
  const unit = base ** Math.floor(Math.log(value) / Math.log(base));
  const size = unit * 10 ** Math.floor(Math.log10(value / unit));
  return [1, 2, 2.5, 4, 5, 8, 10].map((step) => step * size).find((top) => top >= value) || value;
}
function drawCurve(curve, holder) {
  const end = past.unix_s.at(-1) ?? 0, begin = end - span;
  const seen = past.unix_s.map((at, n) => [at, n]).filter(([at]) => at >= begin);
  let most = 0;
  for (const [column] of curve.lines) {
    for (const [, n] of seen) if (known(past[column][n])) most = Math.max(most, past[column][n]);
  }
  // A scale of logarithms goes from power of ten to power of ten.
  const power = (value, round) => 10 ** round(Math.log10(value));
  const top = curve.isLog ? power(Math.max(most, 10), Math.ceil) : niceTop(most, curve.show === bytes ? 1024 : 10);
  const part = (value) => curve.isLog ? Math.max(Math.log10(Math.max(value, 1)) / Math.log10(top), 0) : value / top;
  const ticks = curve.isLog ? Array.from({ length: Math.round(Math.log10(top)) + 1 }, (_, n) => 10 ** n)
    : [0, top / 2, top];
  const x = (at) => LEFT + (WIDTH - LEFT - RIGHT) * (at - begin) / span;
  const y = (value) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part(value);
  let svg = "";
  for (const value of ticks) {
    svg += `<line class="grid" x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${y(value)}"></line>`
      + `<text x="${LEFT - 6}" y="${y(value) + 4}" text-anchor="end">${esc(value === 0 ? "0" : curve.show(value))}</text>`;
  }
  for (const of of [0, 0.5, 1]) {
    const words = of === 1 ? "now" : `${time(span * (1 - of))} ago`;
    const anchor = of === 0 ? "start" : of === 1 ? "end" : "middle";
    svg += `<text x="${x(begin + span * of)}" y="${HEIGHT - 6}" text-anchor="${anchor}">${words}</text>`;
  }
  curve.lines.forEach(([column, , style], n) => {
    let path = "", before = null;
    for (const [at, index] of seen) {
      const value = past[column][index];
      if (!known(value)) { before = null; continue; }
      // A gap is no line.
      path += `${before !== null && at - before <= 12 ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      // One point alone is a dot.
      if (before === null) path += "h.01";
      before = at;
    }
    svg += `<path class="line s${n} ${style || ""}" stroke-linecap="round" d="${path}"></path>`;
  });
  if (cursor !== null && cursor >= begin && cursor <= end) {
    svg += `<line class="cursor" x1="${x(cursor)}" x2="${x(cursor)}" y1="${TOP}" y2="${HEIGHT - BOTTOM}"></line>`;
  }
  let graph = holder.firstElementChild;
  if (!graph) {
    holder.innerHTML = `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" tabindex="0" role="img"></svg>`;
    graph = holder.firstElementChild;
    graph.addEventListener("keydown", moveCursor);
    graph.addEventListener("pointermove", pointCursor);
    graph.addEventListener("pointerleave", () => { cursor = null; drawAll(); });
    graph.addEventListener("blur", () => { cursor = null; drawAll(); });
  }
  graph.innerHTML = svg;
  const last = seen.length ? seen.at(-1)[1] : null;
  const words = (index) => curve.lines.map(([column, name]) =>
    `${name.split(";")[0]} ${curve.show(past[column][index])}`).join(", ");
  graph.setAttribute("aria-label", `${curve.title}: ${last === null ? "no figures yet" : `${words(last)} now`}. `
    + "Arrow keys move through the time.");
  const index = cursor === null ? -1 : past.unix_s.indexOf(cursor);
  const at = index < 0 ? "" : `${new Date(cursor * 1000).toLocaleTimeString()}: ${words(index)}`;
  setText($(`o-${curve.id}`), at);
}
function drawAll() {
  for (const holder of document.querySelectorAll("[data-curve]")) drawCurve(CURVES[holder.dataset.curve], holder);
}
function moveCursor(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -12, PageDown: 12 }[event.key];
  const last = past.unix_s.length - 1;
  if (last < 0) return;
  const at = cursor === null ? last : past.unix_s.indexOf(cursor);
  if (event.key === "Escape") cursor = null;
  else if (event.key === "Home") cursor = past.unix_s.find((s) => s >= past.unix_s[last] - span);
  else if (event.key === "End") cursor = past.unix_s[last];
  else if (step) cursor = past.unix_s[Math.min(Math.max(at + step, 0), last)];
  else return;
  event.preventDefault();
  drawAll();
}
function pointCursor(event) {
  const end = past.unix_s.at(-1);
  if (end === undefined) return;
  const box = event.currentTarget.getBoundingClientRect();
  const part = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
  const wanted = end - span + span * part;
  let nearest = end;
  for (const at of past.unix_s) if (Math.abs(at - wanted) < Math.abs(nearest - wanted)) nearest = at;
  if (nearest !== cursor) { cursor = nearest; drawAll(); }
}
function showSpan(seconds) {
  span = seconds;
  for (const button of document.querySelectorAll("[data-span]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.span) === span));
  }
  drawAll();
}
for (const button of document.querySelectorAll("[data-span]")) {
  button.addEventListener("click", () => {
    isChosen = true;
    showSpan(Number(button.dataset.span));
  });
}
function addPast(points) {
  const names = Object.keys(points).filter((name) => Array.isArray(points[name]));
  for (const name of names) past[name] = (past[name] || []).concat(points[name]);
  const old = past.unix_s.findIndex((at) => at >= (past.unix_s.at(-1) ?? 0) - 3600);
  if (old > 0) for (const name of names) past[name] = past[name].slice(old);
}

// Tables.
const cell = ([text, kind]) => `<td${kind ? ` class="${kind}"` : ""}>${esc(text)}</td>`;
function table(node, heads, rows) {
  setHtml(node, `<thead><tr>${heads.map((head) => `<th scope="col">${esc(head)}</th>`).join("")}</tr></thead>`
    + `<tbody>${rows.map((row) => `<tr>${row.map((c) => cell(Array.isArray(c) ? c : [c])).join("")}</tr>`).join("")}</tbody>`);
}
function showCommands(commands) {
  const old = (command) => command.lately ? "" : "old";
  table($("commands"), ["Command", "a second", "p50", "p99", "longest", "calls", "errors"],
    commands.map((command) => [command.name, [perSecond(command.per_s), old(command)],
      [micros(command.p50_us), old(command)], [micros(command.p99_us), old(command)],
      [micros(command.max_us), old(command)], count(command.calls), count(command.failed + command.rejected)]));
  setText($("commands-note"), commands.length === 0 ? "No command was called yet."
    : "Times in the server, of the last 10 to 20 seconds; grey: since the start, for there was no call of late.");
}
function showHeat(heat) {
  const accesses = (byte) => 2 ** (byte / 8) - 1;
  // Steps of accesses lately: a byte stands for their logarithm.
  const steps = [[0, "not used lately"], [1, "a few uses"], [10, "10 or more"], [100, "100 or more"],
    [1000, "1,000 or more"], [10000, "10,000 or more"]];
  const step = (byte) => byte === 0 ? 0 : Math.max(1, steps.findLastIndex(([least]) => accesses(byte) >= least));
  const columns = 64, size = 10, rows = Math.ceil(heat.length / columns);
  const cells = heat.map((byte, n) => `<rect class="h${step(byte)}" x="${(n % columns) * size}"`
    + ` y="${Math.floor(n / columns) * size}" width="${size - 1}" height="${size - 1}"></rect>`).join("");
  const used = heat.filter((byte) => byte > 0).length;
  const words = heat.length === 0 ? "No memory yet." : `${percent(used / heat.length)} of the memory was used lately.`;
  setHtml($("heat"), `<svg viewBox="0 0 ${columns * size} ${Math.max(rows, 1) * size}" aria-hidden="true">${cells}</svg>`);
  $("heat").setAttribute("aria-label", words);
  setHtml($("heat-legend"), steps.map(([, name], n) =>
    `<li><svg viewBox="0 0 12 12" aria-hidden="true"><rect class="h${n}" width="12" height="12"></rect></svg>${esc(name)}</li>`).join(""));
  setText($("heat-note"), `${words} Each field is a ${heat.length}th of the memory, in the order of addresses; its colour is that of `
    + "its most used block of 64 KiB. Reads and writes count, and half of them are forgotten every 80 seconds.");
}
function showTenants(tenants) {
  $("tenants").hidden = !tenants;
  if (!tenants) return;
  const battery = tenants.battery;
  setText($("tenants-note"), [
    tenants.error ? `OLD, for the guard does not answer: ${tenants.error}.` : "",
    battery ? `The battery: ${time(battery.dirty_s)} to flush all that is dirty, at most ${time(battery.dirty_max_s)} so far, of ${time(battery.flush_s)}.` : "",
    battery && battery.overcommitted_s > 0 ? `Shares are ${time(battery.overcommitted_s)} too long and shrink.` : "",
  ].filter(Boolean).join(" "));
  table($("tenants-table"), ["Region", "server", "dirty", "budget", "to safe", "at most"],
    tenants.regions.map((region) => {
      const allowed = region.share_s ?? region.warning_s;
      return [region.name, region.pid !== null ? String(region.pid) : region.is_flushing ? ["flushing", "near"] : ["gone", "near"],
        [bytes(region.dirty_bytes), region.dirty_bytes > region.budget_bytes ? "bad" : ""], bytes(region.budget_bytes),
        [time(region.time_to_safe_s), region.time_to_safe_s > allowed ? "bad" : ""], time(allowed)];
    }));
}
let devicesBefore = null;
function showDevices(now) {
  $("devices").hidden = now.devices.length === 0;
  if (now.devices.length === 0) return;
  const before = devicesBefore;
  const grown = (device, name) => {
    const old = before && before.devices.find((one) => one.name === device.name && one.path === device.path);
    const passed = before ? (now.at - before.at) / 1000 : 0;
    return old && passed > 0 && device[name] >= old[name] ? (device[name] - old[name]) / passed : null;
  };
  table($("devices-table"), ["Device", "state", "used", "read", "written", "busy", "power state", "watts"],
    now.devices.map((device) => [device.path,
      [device.state, device.state === "failed" ? "bad" : device.state === "full" ? "near" : ""],
      bytes(device.used_bytes), rate(grown(device, "read_bytes")), rate(grown(device, "written_bytes")),
      percent(grown(device, "busy_s")), device.power_state || "–",
      device.watts ? `${short(device.watts[0])} W ${device.watts[1]}` : "none"]));
  devicesBefore = { at: now.at, devices: now.devices };
}
function showHow(now) {
  const { how, status, numbers } = now;
  const rows = [["Durability", status && { warned: "warned: when a write is in memory", fsync: "fsync: when it is on the SSD",
    none: "none" }[status.durability]], ["Tracking", how.tracking], ["Image", how.device], ["Memory", how.memory],
    ["Compression", how.compression], ["Log", bytes(numbers.log_bytes)], ["Written to the SSD", bytes(numbers.device_bytes)],
    ["Checkpoints", `${count(numbers.checkpoints)}; the longest cut ${time(numbers.cut_ns_max / 1e9)}`]];
  setHtml($("how"), rows.filter(([, words]) => words).map(([name, words]) => `<dt>${esc(name)}</dt><dd>${esc(words)}</dd>`).join(""));
}

// Asking.
let answered = null;
async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(5000) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}
async function askNow() {
  try {
    const now = await ask("/api/now");
    now.at = Date.now();
    answered = now.at;
    setText($("about"), `version ${now.version}, up ${time(now.numbers.uptime_in_seconds) || "0s"}`);
    document.title = now.status && !now.status.holds ? "BROKEN – Perdura" : "Perdura";
    showVerdict(now);
    showGauge(now.status);
    showCards(now);
    showCommands(now.commands);
    showHeat(now.heat);
    showTenants(now.tenants);
    showDevices(now);
    showHow(now);
    document.body.dataset.state = "live";
  } catch (error) {
    const since = answered === null ? "" : ` What is below is ${time((Date.now() - answered) / 1000)} old.`;
    $("verdict").className = "verdict bad";
    setHtml($("verdict"), `<p>The server does not answer (${esc(error.message)}).${esc(since)}</p>`);
    document.body.dataset.state = "old";
  }
  setTimeout(askNow, 1000);
}
async function askPast() {
  try {
    addPast(await ask(`/api/history?after=${past.unix_s.at(-1) ?? 0}`));
    // Until the reader chooses: the shortest time that shows all there is.
    const passed = (past.unix_s.at(-1) ?? 0) - (past.unix_s[0] ?? 0);
    showSpan(isChosen ? span : [300, 900].find((seconds) => seconds >= passed) ?? 3600);
  } catch { /* said by askNow */ }
  setTimeout(askPast, past.unix_s.length === 0 ? 1000 : 5000);
}
drawAll();
askNow();
askPast();
