"use strict";
// Asks the server for its models every two seconds and draws the one that is chosen. Everything is of this server.

const SVG = "http://www.w3.org/2000/svg";
const EVERY = 2000; // milliseconds
const HUES = [215, 28, 160, 300, 60, 0, 190, 260]; // of classes, as far as they go
const WIDTH = 480, HEIGHT = 220, LEFT = 46, RIGHT = 10, TOP = 14, BOTTOM = 28;

let chosen = decodeURIComponent(location.hash.slice(1)) || null;
let seen = []; // seconds and samples a second of the chosen model, since it was chosen

const find = (id) => document.getElementById(id);

function made(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function shape(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

async function asked(path) {
  const token = sessionStorage.getItem("token");
  const answer = await fetch(path, { headers: token ? { Authorization: `Bearer ${token}` } : {}, cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) {
    const failed = new Error("This server asks for a token that it knows.");
    failed.needsToken = true;
    throw failed;
  }
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.detail || `The server answered ${answer.status}.`);
  return content;
}

const whole = (value) => Math.round(value).toLocaleString("en");
const percent = (share) => `${(100 * share).toFixed(1)} %`;
function bytes(n) {
  for (const [unit, size] of [["GB", 2 ** 30], ["MB", 2 ** 20], ["KB", 2 ** 10]]) {
    if (n >= size) return `${(n / size).toFixed(1)} ${unit}`;
  }
  return `${n} bytes`;
}

// Curves over a common axis. Each of `curves` is {points, className, colour, name}; `lines` stand upright.
function chart(host, { curves, lines = [], low, high, format, label, xFormat = whole }) {
  const points = curves.flatMap((curve) => curve.points);
  if (points.length < 2) {
    host.replaceChildren(made("p", { class: "quiet" }, "Too few numbers for a curve yet."));
    return;
  }
  const first = Math.min(...points.map((p) => p[0]));
  const last = Math.max(...points.map((p) => p[0]));
  const bottom = low ?? Math.min(...points.map((p) => p[1]));
  const top = Math.max(high ?? Math.max(...points.map((p) => p[1])), bottom + 1e-9);
  const x = (value) => LEFT + ((WIDTH - LEFT - RIGHT) * (value - first)) / (last - first || 1);
  const y = (value) => TOP + ((HEIGHT - TOP - BOTTOM) * (top - value)) / (top - bottom);
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (let i = 0; i <= 4; i++) {
    const value = bottom + ((top - bottom) * i) / 4;
    svg.append(
      shape("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  const marks = first === last ? [[0, "start"]] : [[0, "start"], [2, "middle"], [4, "end"]];
  for (const [i, anchor] of marks) {
    const value = first + ((last - first) * i) / 4;
    svg.append(shape("text", { x: x(value), y: HEIGHT - 8, "text-anchor": anchor }, xFormat(value)));
  }
  for (const line of lines) {
    if (line >= first && line <= last) svg.append(shape("line", { class: "alarm", x1: x(line), x2: x(line), y1: TOP, y2: HEIGHT - BOTTOM }));
  }
  curves.forEach((curve, i) => {
    const paint = curve.colour ? { stroke: curve.colour } : {};
    if (curve.points.length === 1) {
      const [[at, value]] = curve.points;
      svg.append(shape("circle", { class: curve.className, ...paint, cx: x(at), cy: y(value), r: 3 }));
    }
    svg.append(shape("polyline", { class: curve.className, fill: "none", ...paint, points: curve.points.map((p) => `${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join(" ") }));
    if (curve.name && i < 8) {
      const at = { x: LEFT + 6 + 104 * (i % 4), y: TOP + 2 + 14 * Math.floor(i / 4) };
      const name = shape("text", { class: `${curve.nameClass || ""} class-name`, ...at }, shortened(curve.name));
      if (curve.colour) name.style.fill = curve.colour; // the style sheet's colour of texts is stronger than an attribute
      svg.append(name);
    }
  });
  host.replaceChildren(svg);
}

// A name that fits beside others in a chart.
function shortened(name) {
  return name.length > 13 ? `${name.slice(0, 12)}…` : name;
}

// The colour of the class in a place.
function colour(place) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return `hsl(${HUES[place % HUES.length]} 65% ${dark ? 68 : 36}%)`;
}

function drawNumbers(data) {
  const numbers = [
    ["Method", data.method],
    ["Accuracy, last 1,000", data.accuracy ? percent(data.accuracy.window) : "–"],
    ["Accuracy, whole", data.accuracy ? percent(data.accuracy.whole) : "–"],
    ["Samples", whole(data.n_samples)],
    ["Samples a second", data.samples_per_second.toFixed(1)],
    ["Classes", whole(data.n_classes)],
    ["Alarms", whole(data.n_alarms)],
    ["Waiting calls", whole(data.n_waiting)],
    ["Journal", bytes(data.journal_bytes)],
  ];
  find("numbers").replaceChildren(...numbers.map(([name, value]) => made("div", {}, made("dt", {}, name), made("dd", {}, value))));
  find("failure").hidden = !data.failure;
  find("failure").textContent = data.failure || "";
}

function drawCharts(data) {
  const accuracies = data.curve.flatMap((point) => point.slice(1));
  chart(find("accuracy"), {
    curves: [
      { points: data.curve.map((p) => [p[0], p[1]]), className: "curve", name: "last 1,000", nameClass: "curve-name" },
      { points: data.curve.map((p) => [p[0], p[2]]), className: "curve second", name: "faded", nameClass: "second" },
    ],
    lines: data.alarms, low: Math.max(0, Math.min(...accuracies, 1) - 0.05), high: 1,
    format: (value) => `${(100 * value).toFixed(0)} %`, label: "accuracy over samples",
  });
  const labels = [...new Set(data.drift.flatMap(([, moved]) => Object.keys(moved)))];
  chart(find("drift"), {
    curves: labels.slice(0, 8).map((label, place) => ({
      points: data.drift.filter(([, moved]) => label in moved).map(([n, moved]) => [n, moved[label]]),
      className: "class", colour: colour(place), name: label,
    })),
    low: 0, format: (value) => value.toFixed(2), label: "drift over batches",
  });
  chart(find("throughput"), {
    curves: [{ points: seen, className: "curve" }], low: 0, high: Math.max(1, ...seen.map((p) => p[1])), format: (value) => value.toFixed(value < 10 ? 1 : 0),
    label: "samples a second over time", xFormat: (value) => `${((value - Date.now()) / 1000).toFixed(0)} s`,
  });
}

function drawClasses(data) {
  const names = ["class", "samples", "accuracy", "in memory", "drift"];
  const rows = data.classes.map((each) => [
    each.label, whole(each.n), percent(each.right / Math.max(each.n, 1)), whole(each.stored), each.moved === null ? "–" : each.moved.toFixed(2),
  ]);
  find("classes").replaceChildren(
    made("tr", {}, ...names.map((name) => made("th", { scope: "col" }, name))),
    ...rows.map((row) => made("tr", {}, ...row.map((cell) => made("td", { title: cell }, cell)))));
}

function drawMemory(data) {
  const kept = data.memory;
  find("memory").textContent = kept ? `${whole(kept.n)} of ${whole(kept.capacity)} samples, ${bytes(kept.bytes)}.` : "This method keeps no samples.";
  find("pictures").replaceChildren(...data.pictures.map((group) =>
    made("div", { class: "pictures" }, made("span", { title: group.label }, group.label),
      ...group.png.map((png) => made("img", { src: `data:image/png;base64,${png}`, alt: "" })))));
}

function drawModels(models, failing) {
  find("models").replaceChildren(...models.map((name) =>
    made("button", { "aria-pressed": String(name === chosen), class: failing.includes(name) ? "failing" : null, onclick: () => choose(name) }, name)));
}

function choose(name) {
  chosen = name;
  seen = [];
  location.hash = encodeURIComponent(name);
  look();
}

async function look() {
  try {
    const { models } = await asked("models");
    const health = await asked("health");
    const names = [...new Set([...models.map((model) => model.name), ...health.failing])].sort();
    if (!names.includes(chosen)) chosen = names[0] ?? null;
    drawModels(names, health.failing);
    find("access").hidden = true;
    find("model").hidden = chosen === null;
    if (chosen !== null) {
      const data = await asked(`models/${encodeURIComponent(chosen)}/page`);
      seen = [...seen.slice(-299), [Date.now(), data.samples_per_second]];
      drawNumbers(data);
      drawCharts(data);
      drawClasses(data);
      drawMemory(data);
    }
    find("state").textContent = chosen === null ? "No models yet: PUT /models/NAME makes one." : `${names.length} ${names.length === 1 ? "model" : "models"}, ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    find("access").hidden = !error.needsToken;
    find("state").textContent = error.message;
  }
}

find("access").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", find("token").value.trim());
  look();
});
look();
setInterval(look, EVERY);
