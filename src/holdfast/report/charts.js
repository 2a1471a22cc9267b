"use strict";
// Charts in SVG. Text always enters as text, never as markup, since names come from files.

const SVG = "http://www.w3.org/2000/svg";
const N_COLOURS = 8;
const MANY = 6; // methods whose bands, or names, would cover each other
const DASHES = ["", "7 4", "2 3", "10 3 2 3", "1 5", "13 4", "5 2 1 2 1 2", "4 9"]; // with the colours 64 looks
const MARKS = ["circle", "square", "diamond", "triangle", "cross"];

// From low to high; cividis, which looks the same with and without red and green.
const SCALE = [[0, 34, 78], [55, 71, 107], [91, 94, 111], [124, 123, 120], [160, 152, 109], [199, 183, 93], [254, 232, 56]];

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const element = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
const shape = (name, attributes = {}, ...children) => filled(document.createElementNS(SVG, name), attributes, children);

// How the curves of the method in a place of the list look: colour first, then dashes, and a mark of its own.
function styleOf(place) {
  const round = Math.floor(place / N_COLOURS);
  return {
    colour: `var(--method-${place % N_COLOURS})`,
    dash: DASHES[round % DASHES.length],
    mark: MARKS[(place + round) % MARKS.length],
  };
}

function markOf(style, x, y, size = 4, attributes = {}) {
  const s = size;
  const paths = {
    circle: `M${x - s},${y}a${s},${s} 0 1 0 ${2 * s},0a${s},${s} 0 1 0 ${-2 * s},0`,
    square: `M${x - s},${y - s}h${2 * s}v${2 * s}h${-2 * s}z`,
    diamond: `M${x},${y - s - 1}l${s + 1},${s + 1}l${-s - 1},${s + 1}l${-s - 1},${-s - 1}z`,
    triangle: `M${x},${y - s - 1}l${s + 1},${2 * s}h${-2 * s - 2}z`,
    cross: `M${x - s},${y - s}l${2 * s},${2 * s}m0,${-2 * s}l${-2 * s},${2 * s}`,
  };
  const isCross = style.mark === "cross";
  const paint = isCross ? { stroke: style.colour, "stroke-width": 2, fill: "none" } : { fill: style.colour, class: "mark" };
  return shape("path", { d: paths[style.mark], ...paint, ...attributes });
}

function swatch(style) {
  return shape("svg", { class: "swatch", width: 26, height: 12, "aria-hidden": "true" },
    shape("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: style.colour, "stroke-width": 2, "stroke-dasharray": style.dash }),
    markOf(style, 13, 6));
}

// A box with numbers beside the pointer.
const tip = {
  show(event, ...content) {
    const box = document.getElementById("tip");
    box.replaceChildren(...content.filter((part) => part !== null && part !== undefined));
    box.style.visibility = "visible";
    const { width, height } = box.getBoundingClientRect();
    const right = event.clientX + 14 + width < innerWidth;
    box.style.left = `${Math.max(4, right ? event.clientX + 14 : event.clientX - 14 - width)}px`;
    box.style.top = `${Math.max(4, Math.min(event.clientY + 12, innerHeight - height - 4))}px`;
  },
  hide() { document.getElementById("tip").style.visibility = "hidden"; },
};

const tipLine = (text) => element("div", {}, text);

function tipRow(style, label, value, isNear = false) {
  return element("div", { class: isNear ? "row near" : "row" },
    element("span", {}, style ? swatch(style) : null, label), element("span", { class: "number" }, value));
}

// Round steps that cover low to high.
function ticksFor(low, high, about = 5) {
  const raw = (high - low || 1) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push(i * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (Math.abs(step / power - 2.5) < 1e-6 ? 1 : 0));
  return { ticks, step, text: (value) => value.toFixed(digits) };
}

function extentOf(values, { floor = -Infinity, ceiling = Infinity } = {}) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  if (!known.length) return [0, 1];
  let low = Math.min(...known);
  let high = Math.max(...known);
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 0.5;
  low = Math.max(floor, low - room);
  high = Math.min(ceiling, high + room);
  return low < high ? [low, high] : [low - 0.5, low + 0.5];
}

// Axes for a plot of a width; gives the picture, and what turns numbers into places.
function frame(width, height, { x, y, label, xLabel, yLabel, xTicks }) {
  const yTicks = ticksFor(...y, Math.max(3, Math.round(height / 55)));
  const longest = Math.max(...yTicks.ticks.map((tick) => yTicks.text(tick).length));
  const box = { left: 22 + 10 + 7.2 * longest, right: width - 12, top: 10, bottom: height - 40 };
  const within = (value, [low, high]) => (Math.min(high, Math.max(low, value)) - low) / (high - low); // a band may reach out
  const place = {
    x: (value) => box.left + within(value, x) * (box.right - box.left),
    y: (value) => box.bottom - within(value, y) * (box.bottom - box.top),
  };
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const tick of yTicks.ticks) {
    svg.append(
      shape("line", { class: "grid", x1: box.left, x2: box.right, y1: place.y(tick), y2: place.y(tick) }),
      shape("text", { class: "tick", x: box.left - 6, y: place.y(tick) + 4, "text-anchor": "end" }, yTicks.text(tick)));
  }
  for (const [value, text] of xTicks(box.right - box.left)) {
    svg.append(
      shape("line", { class: "grid", x1: place.x(value), x2: place.x(value), y1: box.bottom, y2: box.bottom + 4 }),
      shape("text", { class: "tick", x: place.x(value), y: box.bottom + 17, "text-anchor": "middle" }, text));
  }
  const middle = (box.top + box.bottom) / 2;
  svg.append(
    shape("line", { class: "grid", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }),
    shape("text", { class: "axis", x: (box.left + box.right) / 2, y: height - 5, "text-anchor": "middle" }, xLabel),
    shape("text", { class: "axis", x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, yLabel));
  return { svg, box, place };
}

// Tasks 1…n along the bottom, as many named as there is room for.
function taskTicks(n) {
  return (room) => {
    const every = Math.max(1, Math.ceil(n / Math.max(1, Math.floor(room / 26))));
    return Array.from({ length: n }, (_, i) => [i + 1, String(i + 1)]).filter(([t]) => (t - 1) % every === 0);
  };
}

// Curves over tasks, or over `along`, the words for what the places `at` of each of the series count.
// Each of `series` is {label, style, mean, deviation, at}; one with a single value, where others have more, is a level
// line: it learned all tasks at once.
function lineChart(host, { series, label, yLabel, format, floor, ceiling, along = null }) {
  const known = series.filter((one) => one.mean.some((value) => value !== null));
  if (!known.length) return host.replaceChildren(element("p", { class: "quiet" }, "Nothing to draw: no method is switched on, or none has such numbers."));
  const n = Math.max(...known.map((one) => one.mean.length));
  const isLevel = (one) => !along && one.mean.length === 1 && n > 1;
  const at = (one, i) => (along ? one.at[i] : i + 1);
  const last = along ? Math.max(...known.map((one) => one.at[one.at.length - 1])) : n;
  const numbers = (room) => { const { ticks, text } = ticksFor(0, last, Math.max(2, Math.floor(room / 70))); return ticks.map((tick) => [tick, Number(text(tick)).toLocaleString("en")]); };
  const ends = known.flatMap((one) => one.mean.flatMap((m, i) => (m === null ? [] : [m - one.deviation[i], m + one.deviation[i]])));
  const width = host.clientWidth || 480;
  const { svg, box, place } = frame(width, 270, {
    x: along ? [0, last] : n > 1 ? [1, n] : [0.5, 1.5], y: extentOf(ends, { floor, ceiling }), label, xLabel: along ?? "tasks learned", yLabel, xTicks: along ? numbers : taskTicks(n),
  });
  svg.classList.toggle("many", known.length > MANY);
  for (const one of known) {
    const spots = isLevel(one)
      ? [[box.left, place.y(one.mean[0])], [box.right, place.y(one.mean[0])]]
      : one.mean.map((m, i) => (m === null ? null : [place.x(at(one, i)), place.y(m)])).filter(Boolean);
    const edge = (sign) => one.mean.map((m, i) => (m === null ? null : [place.x(at(one, i)), place.y(m + sign * one.deviation[i])])).filter(Boolean);
    const group = shape("g", { "data-method": one.label, class: "series" });
    if (!isLevel(one) && spots.length > 1 && one.deviation.some((d) => d > 0)) {
      group.append(shape("path", { class: "band", fill: one.style.colour, d: `M${[...edge(1), ...edge(-1).reverse()].join("L")}z` }));
    }
    group.append(shape("path", { class: "curve", stroke: one.style.colour, "stroke-dasharray": isLevel(one) ? "2 5" : one.style.dash, d: `M${spots.join("L")}` }));
    if (!isLevel(one) && n <= 30) spots.forEach(([x, y]) => group.append(markOf(one.style, x, y, 3.5)));
    svg.append(group);
  }
  const guide = shape("line", { class: "guide", y1: box.top, y2: box.bottom, visibility: "hidden" });
  svg.append(guide);
  svg.addEventListener("pointermove", (event) => {
    const bounds = svg.getBoundingClientRect();
    const scale = width / bounds.width;
    const pointer = [(event.clientX - bounds.left) * scale, (event.clientY - bounds.top) * scale];
    const share = (pointer[0] - box.left) / (box.right - box.left);
    const t = along ? Math.min(last, Math.max(0, share * last)) : n > 1 ? Math.min(n, Math.max(1, Math.round(1 + share * (n - 1)))) : 1;
    const rows = known
      .map((one) => ({ one, i: isLevel(one) ? 0 : along ? nearestPlace(one.at, t) : t - 1 }))
      .filter(({ one, i }) => i < one.mean.length && one.mean[i] !== null)
      .sort((a, b) => b.one.mean[b.i] - a.one.mean[a.i]);
    if (!rows.length) return tip.hide();
    const away = ({ one, i }) => Math.abs(place.y(one.mean[i]) - pointer[1]);
    const nearest = rows.reduce((a, b) => (away(b) < away(a) ? b : a));
    svg.querySelectorAll(".series").forEach((group) => group.classList.toggle("near", group.dataset.method === nearest.one.label));
    const spot = along ? at(nearest.one, nearest.i) : t;
    guide.setAttribute("x1", place.x(spot));
    guide.setAttribute("x2", place.x(spot));
    guide.setAttribute("visibility", "visible");
    const shown = rows.length > 14 ? rows.filter((row) => row === nearest || rows.indexOf(row) < 13) : rows;
    tip.show(event, tipLine(along ? `${spot.toLocaleString("en")} ${along}` : t === 1 ? "after task 1" : `after ${t} tasks`),
      ...shown.map((row) => tipRow(row.one.style, row.one.label, withSpread(row.one.mean[row.i], row.one.deviation[row.i], format), row === nearest)),
      rows.length > shown.length ? tipLine(`and ${rows.length - shown.length} more`) : null);
  });
  svg.addEventListener("pointerleave", () => {
    guide.setAttribute("visibility", "hidden");
    svg.querySelectorAll(".near").forEach((group) => group.classList.remove("near"));
    tip.hide();
  });
  host.replaceChildren(svg);
}

// The place in a rising list of numbers that is nearest to one.
function nearestPlace(places, value) {
  let i = 0;
  while (i + 1 < places.length && places[i + 1] - value <= value - places[i]) i += 1;
  return i;
}

const withSpread = (mean, deviation, format) => (deviation > 0 ? `${format(mean)} ± ${format(deviation)}` : format(mean));

// Points {label, style, x, y, xDeviation, yDeviation}, with names beside them where there is room.
function scatterChart(host, { points, label, xLabel, yLabel, xFormat, yFormat }) {
  if (!points.length) return host.replaceChildren(element("p", { class: "quiet" }, "Nothing to draw: no method is switched on."));
  const width = host.clientWidth || 480;
  const reach = (axis) => points.flatMap((p) => [p[axis] - p[`${axis}Deviation`], p[axis] + p[`${axis}Deviation`]]);
  const x = [0, extentOf([0, ...reach("x")])[1]];
  const { svg, box, place } = frame(width, 270, {
    x, y: extentOf(reach("y"), { floor: 0, ceiling: 100 }), label, xLabel, yLabel,
    xTicks: (room) => { const { ticks, text } = ticksFor(...x, Math.max(2, Math.floor(room / 70))); return ticks.map((tick) => [tick, text(tick)]); },
  });
  const taken = points.map((p) => ({ left: place.x(p.x) - 6, right: place.x(p.x) + 6, top: place.y(p.y) - 6, bottom: place.y(p.y) + 6 }));
  for (const p of points) {
    const [cx, cy] = [place.x(p.x), place.y(p.y)];
    const group = shape("g", { "data-method": p.label, class: "series" },
      shape("line", { stroke: p.style.colour, x1: place.x(p.x - p.xDeviation), x2: place.x(p.x + p.xDeviation), y1: cy, y2: cy }),
      shape("line", { stroke: p.style.colour, x1: cx, x2: cx, y1: place.y(p.y - p.yDeviation), y2: place.y(p.y + p.yDeviation) }),
      markOf(p.style, cx, cy, 5),
      shape("circle", { cx, cy, r: 12, fill: "transparent" }));
    const name = p.label.length > 24 ? `${p.label.slice(0, 23)}…` : p.label;
    const spot = points.length > 2 * MANY ? null : freeSpot(cx, cy, 6.6 * name.length, box, taken);
    if (spot) {
      taken.push(spot);
      group.append(shape("text", { class: "halo", x: spot.left, y: spot.bottom - 4 }, name));
    }
    group.addEventListener("pointermove", (event) => tip.show(event, tipRow(p.style, p.label, ""),
      tipRow(null, yLabel, withSpread(p.y, p.yDeviation, yFormat)), tipRow(null, xLabel, withSpread(p.x, p.xDeviation, xFormat))));
    group.addEventListener("pointerleave", tip.hide);
    svg.append(group);
  }
  host.replaceChildren(svg);
}

// A box for a name beside a point that covers no other; null if there is none.
function freeSpot(cx, cy, width, box, taken) {
  for (const dy of [-13, 13, 0, -28, 28]) {
    for (const left of [cx + 10, cx - 10 - width]) {
      const spot = { left, right: left + width, top: cy + dy - 8, bottom: cy + dy + 8 };
      const inside = spot.left > box.left && spot.right < box.right && spot.top > box.top - 8 && spot.bottom < box.bottom;
      const covers = (other) => spot.left < other.right && spot.right > other.left && spot.top < other.bottom && spot.bottom > other.top;
      if (inside && !taken.some(covers)) return spot;
    }
  }
  return null;
}

function shade(share) {
  const at = Math.min(1, Math.max(0, share)) * (SCALE.length - 1);
  const i = Math.min(SCALE.length - 2, Math.floor(at));
  const rgb = SCALE[i].map((low, c) => Math.round(low + (at - i) * (SCALE[i + 1][c] - low)));
  const light = 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
  return { fill: `rgb(${rgb.join(" ")})`, ink: light > 115 ? "#000" : "#fff" };
}

// Cells {text, share, tip} by row and column; null where there is nothing.
function heatMap(host, { rows, columns, cells, rowLabel, columnLabel, label, low, high, most = 64 }) {
  const width = host.clientWidth || 480;
  const margin = 22 + 10 + 7.2 * Math.max(...rows.map((row) => String(row).length));
  const side = Math.max(3, Math.min(most, (width - margin - 4) / columns.length));
  const tall = Math.min(side, 34, Math.max(18, 270 / rows.length));
  const top = 38;
  const height = top + tall * rows.length + 34;
  const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const every = (size, room) => Math.max(1, Math.ceil(room / size));
  const widestText = 7 * Math.max(...cells.flat().map((cell) => (cell ? cell.text.length : 0)));
  svg.append(
    shape("text", { class: "axis", x: margin, y: 12 }, columnLabel),
    shape("text", { class: "axis", x: 11, y: top + (tall * rows.length) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${top + (tall * rows.length) / 2})` }, rowLabel));
  columns.forEach((name, j) => {
    if (j % every(side, 7.2 * String(name).length + 5)) return;
    svg.append(shape("text", { class: "tick", x: margin + side * (j + 0.5), y: top - 6, "text-anchor": "middle" }, String(name)));
  });
  rows.forEach((name, i) => {
    if (i % every(tall, 14)) return;
    svg.append(shape("text", { class: "tick", x: margin - 6, y: top + tall * (i + 0.5) + 4, "text-anchor": "end" }, String(name)));
  });
  cells.forEach((row, i) => row.forEach((cell, j) => {
    const [x, y] = [margin + side * j, top + tall * i];
    const gap = side > 8 ? 1 : 0;
    if (!cell) return svg.append(shape("rect", { class: "empty", x, y, width: side - gap, height: tall - gap }));
    const { fill, ink } = shade(cell.share);
    const group = shape("g", { class: "cell" }, shape("rect", { x, y, width: side - gap, height: tall - gap, fill }));
    if (widestText + 4 < side && tall >= 14) {
      group.append(shape("text", { x: x + (side - gap) / 2, y: y + (tall - gap) / 2 + 4, "text-anchor": "middle", "data-ink": ink }, cell.text));
    }
    group.addEventListener("pointermove", (event) => tip.show(event, ...cell.tip.map(tipLine)));
    group.addEventListener("pointerleave", tip.hide);
    svg.append(group);
  }));
  svg.querySelectorAll("[data-ink]").forEach((text) => { text.style.fill = text.dataset.ink; });
  const bar = Math.min(160, width - margin - 90);
  const steps = 32;
  for (let i = 0; i < steps; i++) {
    svg.append(shape("rect", { x: margin + 34 + (bar * i) / steps, y: height - 18, width: bar / steps + 0.5, height: 10, fill: shade(i / (steps - 1)).fill }));
  }
  svg.append(
    shape("text", { class: "tick", x: margin + 28, y: height - 9, "text-anchor": "end" }, low),
    shape("text", { class: "tick", x: margin + 40 + bar, y: height - 9 }, high));
  host.replaceChildren(svg);
}

// How many of the values fall into each of some equal parts.
function histogram(host, { values, label, xLabel, floor = 0 }) {
  const known = values.filter((value) => value !== null);
  const width = host.clientWidth || 340;
  const high = Math.max(...known);
  const x = [floor, high > floor ? high : floor + 1];
  const nBins = Math.max(1, Math.min(24, Math.ceil(Math.sqrt(known.length)) + 2, Math.floor(width / 14)));
  const size = (x[1] - x[0]) / nBins;
  const counts = new Array(nBins).fill(0);
  for (const value of known) counts[Math.min(nBins - 1, Math.max(0, Math.floor((value - x[0]) / size)))]++;
  const { svg, place } = frame(width, 180, {
    x, y: [0, Math.max(...counts) * 1.08], label, xLabel, yLabel: "samples",
    xTicks: (room) => { const { ticks, text } = ticksFor(...x, Math.max(2, Math.floor(room / 70))); return ticks.map((tick) => [tick, text(tick)]); },
  });
  const text = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  counts.forEach((count, i) => {
    const [left, right] = [place.x(x[0] + i * size), place.x(x[0] + (i + 1) * size)];
    const bar = shape("rect", { class: "bar", x: left, width: Math.max(1, right - left - 1), y: place.y(count), height: place.y(0) - place.y(count) });
    bar.addEventListener("pointermove", (event) => tip.show(event, tipLine(`${count} samples from ${text(x[0] + i * size)} to ${text(x[0] + (i + 1) * size)}`)));
    bar.addEventListener("pointerleave", tip.hide);
    svg.append(bar);
  });
  host.replaceChildren(svg);
}
