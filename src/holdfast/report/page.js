// The page: what is shown of the data, and what can be switched.

const DATA = JSON.parse(document.getElementById("data").textContent);
const STYLES = new Map(DATA.labels.map((label, place) => [label, styleOf(place)]));
const off = new Set(); // labels that are switched off, on the whole page
const OPEN_AT_MOST = 4; // sections that are open when the page is; the content of others is made when they are opened
const folds = []; // of each section: its box, whether it was made, and the functions that draw its charts anew
let drawings = []; // of the section that is being made

const WORDS = {
  "A_T (%)": "Average accuracy: mean accuracy on all tasks after the last one was learned.",
  F_T: "Forgetting: how far accuracy on each old task is below the best it ever had, on average. 0 is best.",
  LTR: "Long-term remembering: accuracy lost since each task was learned, weighted by how long ago. 0 is best.",
  "learned (%)": "Learning accuracy: mean accuracy on each task directly after it was learned.",
  "ms per step": "Milliseconds for one batch, on the machine of the run.",
  seconds: "Time spent learning, without testing.",
  seeds: "Number of runs that differ in their seed only.",
  method: "A row: a method with its settings. What differs between the rows stands below the table.",
  testing: "Seconds spent testing.",
  memory: "Samples in the replay memory at the end.",
  "MB in all": "Everything the learner kept at the end: weights, passes over them, samples and what methods add.",
  spread: "Root mean square distance of features from their mean: the unit of drift.",
};

const percent = (value) => `${(100 * value).toFixed(1)} %`;
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const shownOf = (methods) => methods.filter((method) => !off.has(method.label));
const hundredfold = (values) => values.map((value) => (value === null ? null : 100 * value));

function drawAgain() {
  tip.hide();
  folds.filter((fold) => fold.made && fold.box.open).forEach((fold) => fold.drawings.forEach((draw) => draw()));
  document.querySelectorAll(".legend button[data-label]").forEach((button) => button.setAttribute("aria-pressed", String(!off.has(button.dataset.label))));
  document.querySelectorAll(".legend").forEach((box) => box.classList.toggle("tall", box.clientHeight > 120));
  document.querySelectorAll("tr[data-label]").forEach((row) => row.classList.toggle("off", off.has(row.dataset.label)));
}

function highlight(label) {
  document.querySelectorAll("svg:has(> [data-method])").forEach((svg) => {
    svg.classList.toggle("dims", label !== null);
    svg.querySelectorAll(":scope > [data-method]").forEach((group) => group.classList.toggle("lit", group.dataset.method === label));
  });
}

function card(title, explanation, { choices = [], wide = false, tall = false } = {}) {
  const host = element("div", { class: "chart" });
  const box = element("div", { class: `card${wide ? " wide" : ""}${tall ? " tall" : ""}` },
    element("div", { class: "head" }, element("h3", {}, title), choices.length ? element("div", { class: "choices" }, ...choices) : null),
    element("p", {}, explanation), host);
  return { box, host };
}

function choice(name, options, onChange) {
  const select = element("select", { onchange: () => onChange(select.value) }, ...options.map(([value, text]) => element("option", { value }, text)));
  return { select, box: element("label", { class: "choice" }, name, select) };
}

const BEST = 8; // methods that one button draws
const bestOf = (section) => section.methods.filter(({ accuracy }) => accuracy.mean[0] !== null)
  .sort((a, b) => b.accuracy.mean[0] - a.accuracy.mean[0]).slice(0, BEST).map(({ label }) => label);
const fits = (text, typed) => typed.toLowerCase().split(/\s+/).filter(Boolean).every((word) => text.toLowerCase().includes(word));

function legend(section) {
  const buttons = section.methods.map(({ label }) => element("button", {
    type: "button", "data-label": label, "aria-pressed": "true", title: "switch on or off",
    onclick: () => { if (!off.delete(label)) off.add(label); drawAgain(); },
    onpointerenter: () => highlight(label), onpointerleave: () => highlight(null),
    onfocus: () => highlight(label), onblur: () => highlight(null),
  }, swatch(STYLES.get(label)), element("span", {}, label)));
  const labels = section.methods.map(({ label }) => label);
  const all = (onclick, text) => element("button", { type: "button", class: "quiet", onclick: () => { onclick(); drawAgain(); } }, text);
  const only = (wanted) => labels.forEach((label) => (wanted.has(label) ? off.delete(label) : off.add(label)));
  const both = labels.length < 3 ? [] : [all(() => only(new Set(labels)), "all"), all(() => only(new Set()), "none")];
  if (labels.length > 2 * BEST) both.push(all(() => only(new Set(bestOf(section))), `best ${BEST}`));
  const filter = labels.length > 2 * MANY ? element("input", {
    type: "search", placeholder: "methods with …", "aria-label": "Draw methods that contain",
    oninput: () => { only(new Set(labels.filter((label) => fits(label, filter.value)))); drawAgain(); },
  }) : null;
  return element("div", { class: "legend", role: "group", "aria-label": "methods shown" }, filter, ...both, ...buttons);
}

// A word that shows its meaning where it stands: to a pointer, a finger and the keyboard.
function explained(node, word) {
  const meaning = WORDS[word];
  if (!meaning) return node;
  node.classList.add("word");
  const show = () => { const { left, bottom } = node.getBoundingClientRect(); tip.show({ clientX: left - 10, clientY: bottom - 6 }, tipLine(meaning)); };
  node.addEventListener("pointerenter", show);
  node.addEventListener("focus", show);
  node.addEventListener("click", show);
  node.addEventListener("pointerleave", tip.hide);
  node.addEventListener("blur", tip.hide);
  return node;
}

function comparison(section) {
  const { header, lines } = section.table;
  const body = element("tbody");
  const valueOf = (line, column) => (column === 0 ? line.label : column === header.length - 1 ? line.n_seeds : line.cells[column - 1].value);
  const heads = header.map((title, column) => element("th", { class: column ? "number" : null, scope: "col" },
    explained(element("button", { type: "button", "aria-description": "sorts the table", onclick: () => sortBy(column) }, title), title)));
  const rowOf = (line) => element("tr", { "data-label": line.label },
    element("td", { class: "name" }, swatch(STYLES.get(line.label)), line.mark ? `${line.label} ${line.mark}` : line.label),
    ...line.cells.map((cell) => element("td", { class: cell.best ? "number best" : "number" }, cell.text)),
    element("td", { class: "number" }, String(line.n_seeds)));
  const rows = new Map(lines.map((line) => [line, rowOf(line)]));
  function sortBy(column) {
    const falls = heads[column].getAttribute("aria-sort") !== "descending" && column > 0;
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[column].setAttribute("aria-sort", falls ? "descending" : "ascending");
    const sign = falls ? -1 : 1;
    const missing = (value) => value === null;
    const compare = (a, b) => (missing(a) || missing(b) ? missing(a) - missing(b) : sign * (a < b ? -1 : a > b ? 1 : 0));
    body.append(...[...lines].sort((a, b) => compare(valueOf(a, column), valueOf(b, column))).map((line) => rows.get(line)));
  }
  body.append(...rows.values());
  return element("div", { class: "scrolls" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
}

const curvesOf = (section, name, scaled = (values) => values) => shownOf(section.methods).map((method) => ({
  label: method.label, style: STYLES.get(method.label), mean: scaled(method.curves[name].mean), deviation: scaled(method.curves[name].deviation),
}));

function accuracyCard(section, name, title, explanation) {
  const { box, host } = card(title, explanation);
  drawings.push(() => lineChart(host, { series: curvesOf(section, name, hundredfold), label: title, yLabel: "accuracy (%)", format: (value) => value.toFixed(1), floor: 0, ceiling: 100 }));
  return box;
}

function driftCard(section, title, explanation, options) {
  let name = options[0][0];
  const what = choice("", options, (value) => { name = value; drawAgain(); });
  what.select.setAttribute("aria-label", `what of ${title}`);
  const { box, host } = card(title, explanation, { choices: [what.box] });
  drawings.push(() => lineChart(host, { series: curvesOf(section, name), label: title, yLabel: "spreads", format: (value) => value.toFixed(2), floor: 0 }));
  return box;
}

function costCard(section) {
  const title = "Cost against accuracy";
  const { box, host } = card(title, "What a step took, on the machine of the runs, and A_T at the end; bars are the deviation over seeds.");
  drawings.push(() => scatterChart(host, {
    points: shownOf(section.methods)
      .map((method) => ({
        label: method.label, style: STYLES.get(method.label),
        x: method.cost.mean[0], xDeviation: method.cost.deviation[0] ?? 0,
        y: method.accuracy.mean[0] === null ? null : 100 * method.accuracy.mean[0], yDeviation: 100 * (method.accuracy.deviation[0] ?? 0),
      }))
      .filter((point) => point.x !== null && point.y !== null),
    label: title, xLabel: "ms per step", yLabel: "A_T (%)", xFormat: (value) => value.toFixed(2), yFormat: (value) => value.toFixed(1),
  }));
  return box;
}

function matrixCard(section) {
  let method = section.methods.find(({ is_bound }) => !is_bound) ?? section.methods[0];
  let matrix = null;
  const runChoice = choice("seed", [], (value) => { matrix = matrixOf(value); drawAgain(); });
  const matrixOf = (value) => (value === "mean" ? method.mean_accuracies : method.runs[Number(value)].accuracies);
  const offerRuns = () => {
    const seeds = method.runs.map((run, i) => [String(i), String(run.seed)]);
    const options = method.runs.length > 1 && method.mean_accuracies ? [["mean", "mean"], ...seeds] : seeds;
    runChoice.select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
    matrix = matrixOf(options[0][0]);
  };
  const methodChoice = choice("method", section.methods.map(({ label }, i) => [String(i), label]), (value) => { method = section.methods[Number(value)]; offerRuns(); drawAgain(); });
  methodChoice.select.value = String(section.methods.indexOf(method));
  offerRuns();
  const { box, host } = card("Accuracy matrix", "In per cent: on each task (across), after each task learned (down).", { choices: [methodChoice.box, runChoice.box] });
  box.dataset.chart = "matrix";
  drawings.push(() => heatMap(host, {
    rows: matrix.map((_, t) => (matrix.length === 1 ? "all" : t + 1)), columns: matrix[0].map((_, j) => j + 1),
    cells: matrix.map((row, t) => row.map((a, j) => (a === null ? null : {
      text: (100 * a).toFixed(matrix[0].length > 12 ? 0 : 1), share: a,
      tip: [`task ${j + 1} after ${matrix.length === 1 ? "all tasks" : `task ${t + 1}`}: ${percent(a)}`,
        ...(t > j && matrix[j][j] !== null ? [`${((100 * (a - matrix[j][j])).toFixed(1)).replace("-", "−")} points since it was learned`] : [])],
    }))),
    rowLabel: "after task", columnLabel: "tested on task", label: `Accuracy matrix of ${method.label}`, low: "0", high: "100 %",
  }));
  return box;
}

const LEARNING = {
  seen: ["accuracy on the classes seen", "samples learned", "accuracy (%)", (value) => value.toFixed(1), hundredfold, 100],
  loss: ["loss", "samples learned", "loss", (value) => value.toPrecision(3), (values) => values, undefined],
  prequential: ["accuracy on what comes next", "batches learned", "accuracy (%)", (value) => value.toFixed(1), hundredfold, 100],
};

// What happens between the ends of tasks, where a probe has measured it.
function learningCard(section) {
  const names = Object.keys(LEARNING).filter((name) => section.methods.some(({ learning }) => learning[name]));
  if (!names.length) return null;
  let name = names[0];
  const what = choice("", names.map((each) => [each, LEARNING[each][0]]), (value) => { name = value; drawAgain(); });
  what.select.setAttribute("aria-label", "what of the learning curve");
  const { box, host } = card("Learning curve", "While the stream is learned. Accuracy is on test samples of all classes seen so far; of what comes next it is on the last samples of the stream, each predicted before it is learned.", { choices: [what.box] });
  box.dataset.chart = "learning";
  drawings.push(() => {
    const [title, along, yLabel, format, scaled, ceiling] = LEARNING[name];
    lineChart(host, {
      series: shownOf(section.methods).filter(({ learning }) => learning[name]).map(({ label, learning }) => ({
        label, style: STYLES.get(label), at: learning[name].at, mean: scaled(learning[name].mean), deviation: scaled(learning[name].deviation),
      })),
      label: `Learning curve: ${title}`, yLabel, format, floor: 0, ceiling, along,
    });
  });
  return box;
}

const byNumber = (a, b) => Number(a) - Number(b);

function classesCard(section) {
  if (!section.methods.some(({ by_class }) => by_class)) return null;
  const online = section.methods.some(({ by_class }) => by_class && by_class.kind === "online");
  const { box, host } = card("Accuracy on each class", `In per cent, over the samples of all seeds${online ? ": of test samples at the end, or (online) of samples of the stream, each predicted before it was learned" : " to test on, at the end"}.`, { wide: true });
  box.dataset.chart = "classes";
  drawings.push(() => {
    const methods = shownOf(section.methods).filter(({ by_class }) => by_class);
    if (!methods.length) return host.replaceChildren(element("p", { class: "quiet" }, "Nothing to draw: no method is switched on that has measured it."));
    const classes = [...new Set(methods.flatMap(({ by_class }) => Object.keys(by_class.accuracies)))].sort(byNumber);
    const name = ({ label, by_class }) => `${label.length > 22 ? `${label.slice(0, 21)}…` : label}${by_class.kind === "online" && online ? " (online)" : ""}`;
    heatMap(host, {
      rows: methods.map(name), columns: classes, rowLabel: "method", columnLabel: "class", label: "Accuracy on each class", low: "0", high: "100 %", most: 44,
      cells: methods.map(({ label, by_class }) => classes.map((y) => {
        const share = by_class.accuracies[y];
        return share === undefined ? null : { text: (100 * share).toFixed(0), share, tip: [label, `class ${y}: ${percent(share)}`] };
      })),
    });
  });
  return box;
}

const DRAWN_CLASSES = 50; // of a confusion matrix; of more the most frequent confusions are listed

function confusionCard(section) {
  const runs = section.methods.flatMap(({ label, runs: all }) => all.filter(({ confusion }) => confusion).map((run) => ({ label, run })));
  if (!runs.length) return null;
  let shown = runs[0];
  const pick = choice("run", runs.map(({ label, run }, i) => [String(i), `${label}, seed ${run.seed}`]), (value) => { shown = runs[Number(value)]; drawAgain(); });
  const { box, host } = card("Confusion matrix", "Of the test samples of each class (down), the share that is taken for each class (across), at the end.", { choices: [pick.box] });
  box.dataset.chart = "confusion";
  drawings.push(() => drawConfusion(host, shown.label, shown.run.confusion));
  return box;
}

function drawConfusion(host, label, counts) {
  const classes = [...new Set(counts.flatMap(([y, taken]) => [y, taken]))].sort(byNumber);
  const totals = new Map();
  counts.forEach(([y, , n]) => totals.set(y, (totals.get(y) ?? 0) + n));
  const said = ([y, taken, n]) => [`${plural(n, "sample")} of class ${y} taken for ${y === taken ? "what they are" : `class ${taken}`}`, `${percent(n / totals.get(y))} of the class`];
  if (classes.length > DRAWN_CLASSES) {
    const worst = counts.filter(([y, taken]) => y !== taken).sort((a, b) => b[2] / totals.get(b[0]) - a[2] / totals.get(a[0])).slice(0, 20);
    return host.replaceChildren(element("p", { class: "quiet" }, `The most frequent of the confusions of ${classes.length} classes:`),
      element("div", { class: "scrolls" }, element("table", {},
        element("thead", {}, element("tr", {}, ...["class", "taken for", "share", "samples"].map((title) => element("th", { class: "number", scope: "col" }, title)))),
        element("tbody", {}, ...worst.map(([y, taken, n]) => element("tr", {}, ...[y, taken, percent(n / totals.get(y)), n].map((text) => element("td", { class: "number" }, String(text)))))))));
  }
  const found = new Map(counts.map((count) => [`${count[0]},${count[1]}`, count]));
  heatMap(host, {
    rows: classes, columns: classes, rowLabel: "class", columnLabel: "taken for class", label: `Confusion matrix of ${label}`, low: "0", high: "100 %",
    cells: classes.map((y) => classes.map((taken) => {
      const count = found.get(`${y},${taken}`);
      if (!count) return null;
      const share = count[2] / totals.get(y);
      return { text: (100 * share).toFixed(0), share, tip: said(count) };
    })),
  });
}

const classColour = (place) => `var(--class-${place % 10})`;

function mapCard(section) {
  const mapped = section.methods.filter(({ record }) => record && record.map);
  if (!mapped.length) return null;
  const n = Math.max(...mapped.map(({ record }) => record.map.places.length));
  const { box, host } = card("Drift map of the first task",
    "Each dot is a test sample of task 1, placed by its features (t-SNE). The slider shows the same samples after later tasks. "
    + "Classes that keep their places have not drifted. The map shows which samples get mixed up; the curves show how far features moved.", { wide: true, tall: true });
  const classes = [...new Set(mapped.flatMap(({ record }) => record.map.y))].sort((a, b) => a - b);
  const now = element("output", { class: "number" });
  const slider = element("input", { type: "range", min: 1, max: n, value: 1, step: 1, "aria-label": "tasks learned", oninput: () => move(Number(slider.value)) });
  let timer = null;
  const play = element("button", { type: "button", onclick: () => (timer ? stop() : start()) }, "▶ play");
  const stop = () => { clearInterval(timer); timer = null; play.textContent = "▶ play"; };
  const start = () => {
    play.textContent = "■ stop";
    if (Number(slider.value) === n) step(1);
    timer = setInterval(() => { if (Number(slider.value) >= n) stop(); else step(Number(slider.value) + 1); }, 900);
  };
  const step = (t) => { slider.value = t; move(t); };
  const tiles = mapped.map((method) => mapTile(method, classes));
  const maps = element("div", { class: "maps" });
  function move(t) {
    now.textContent = t === 1 ? "after task 1" : `after ${t} tasks`;
    tiles.forEach((tile) => tile.move(t - 1));
  }
  host.append(element("div", { class: "player" }, ...(n > 1 ? [play, slider] : []), now), maps);
  drawings.push(() => maps.replaceChildren(...tiles.filter((tile) => !off.has(tile.label)).map((tile) => tile.box)));
  move(1);
  return box;
}

function mapTile({ label, record }, classes) {
  const { places, y } = record.map;
  const svg = shape("svg", { viewBox: "-40 -40 1080 1080", role: "img", "aria-label": `Drift map of ${label}` });
  const size = 260 / 1080; // pixels a unit, about: dots and names are as large whatever the width
  const dots = y.map((name, i) => {
    const dot = shape("circle", { r: 3.2 / size, fill: classColour(classes.indexOf(name)), "data-class": name });
    dot.addEventListener("pointermove", (event) => { light(name); tip.show(event, tipLine(`class ${name}, sample ${i + 1}`)); });
    dot.addEventListener("pointerleave", () => { light(null); tip.hide(); });
    return dot;
  });
  const names = new Map([...new Set(y)].map((name) => [name, shape("text", { class: "halo name-of-class", "data-class": name }, String(name))]));
  names.forEach((text) => { text.style.fontSize = `${14 / size}px`; text.style.strokeWidth = `${3 / size}px`; });
  svg.append(...dots, ...names.values());
  const light = (name) => svg.querySelectorAll("[data-class]").forEach((part) => part.classList.toggle("dim", name !== null && part.dataset.class !== String(name)));
  const moved = element("span", { class: "quiet number" });
  const box = element("div", { class: "map", "data-method": label },
    element("h4", {}, swatch(STYLES.get(label)), label), svg, element("p", { class: "quiet" }, `seed ${record.seed}`, moved));
  function move(t) {
    const at = places[Math.min(t, places.length - 1)];
    dots.forEach((dot, i) => { dot.style.transform = `translate(${at[i][0]}px, ${1000 - at[i][1]}px)`; });
    names.forEach((text, name) => {
      const own = at.filter((_, i) => y[i] === name);
      const mean = (axis) => own.reduce((sum, spot) => sum + spot[axis], 0) / own.length;
      text.style.transform = `translate(${mean(0)}px, ${1000 - mean(1) + 5 / size}px)`;
    });
    const distance = record.first_moved[t];
    moved.textContent = distance === null || distance === undefined ? "" : `, moved by ${distance.toFixed(2)} spreads`;
  }
  return { label, box, move };
}

function memoryCard(section) {
  const kept = section.methods.filter(({ record }) => record && record.memory);
  if (!kept.length) return null;
  let method = kept[0];
  const choices = kept.length > 1 ? [choice("method", kept.map(({ label }, i) => [String(i), label]), (value) => { method = kept[Number(value)]; drawAgain(); }).box] : [];
  const { box, host } = card("What is in the memory", "At the end of the run: how many samples of each class and task, since when, and the samples themselves.", { choices, wide: true, tall: true });
  box.dataset.chart = "memory";
  drawings.push(() => drawMemory(host, method));
  return box;
}

function drawMemory(host, { label, record }) {
  const { n, counts, ages, distances, sprite, samples } = record.memory;
  const parts = element("div", { class: "memory" });
  host.replaceChildren(element("p", { class: "quiet" }, `${label}, seed ${record.seed}: ${plural(n, "sample")}`), parts);
  const later = []; // charts are as wide as the room that all of them leave
  const part = (title, draw, wide = false) => {
    const inside = element("div", { class: "chart" });
    parts.append(element("div", { class: wide ? "wide" : "" }, element("h4", {}, title), inside));
    later.push(() => draw(inside));
  };
  part("Balance", (inside) => drawBalance(inside, counts, label));
  if (ages.some((age) => age !== null)) part("Age", (inside) => histogram(inside, { values: ages, label: `Age of what ${label} has stored`, xLabel: "batches since the sample came" }));
  if (distances) part("Distance to the centroid", (inside) => histogram(inside, { values: distances, label: "Distance to the centroid", xLabel: "in units of the features" }));
  if (sprite) part(samples.length < n ? `${samples.length} of the samples, by task and class` : "The samples, by task and class", (inside) => drawThumbnails(inside, sprite, samples), true);
  later.forEach((draw) => draw());
}

function drawBalance(host, counts, label) {
  const tasks = [...new Set(counts.map(([task]) => task))];
  const classes = [...new Set(counts.map(([, y]) => y))].sort((a, b) => a - b);
  const most = Math.max(...counts.map(([, , count]) => count));
  const found = new Map(counts.map(([task, y, count]) => [`${task},${y}`, count]));
  heatMap(host, {
    rows: tasks.map((task) => (task < 0 ? "none" : task + 1)), columns: classes, rowLabel: "task", columnLabel: "class",
    label: `Balance of the memory of ${label}`, low: "0", high: String(most), most: 34,
    cells: tasks.map((task) => classes.map((y) => {
      const count = found.get(`${task},${y}`);
      return count ? { text: String(count), share: count / most, tip: [`${plural(count, "sample")} of class ${y}, ${task < 0 ? "of no known task" : `task ${task + 1}`}`] } : null;
    })),
  });
}

function drawThumbnails(host, sprite, samples) {
  const zoom = Math.max(1, Math.round(32 / sprite.width));
  const [width, height] = [sprite.width * zoom, sprite.height * zoom];
  const nRows = Math.ceil(samples.length / sprite.columns);
  const address = `url("data:image/png;base64,${sprite.png}")`;
  const cells = samples.map((sample, i) => {
    const cell = element("span", { class: "thumbnail" });
    Object.assign(cell.style, {
      width: `${width}px`, height: `${height}px`, backgroundImage: address, backgroundSize: `${width * sprite.columns}px ${height * nRows}px`,
      backgroundPosition: `-${width * (i % sprite.columns)}px -${height * Math.floor(i / sprite.columns)}px`,
    });
    cell.addEventListener("pointermove", (event) => tip.show(event,
      tipLine(`class ${sample.y}${sample.task < 0 ? "" : `, task ${sample.task + 1}`}`),
      sample.age === null ? "" : tipLine(`came ${plural(sample.age, "batch").replace("batchs", "batches")} ago`),
      sample.distance === null ? "" : tipLine(`${sample.distance} from its centroid`)));
    cell.addEventListener("pointerleave", tip.hide);
    return cell;
  });
  host.append(element("div", { class: "thumbnails" }, ...cells), element("p", { class: "quiet" }, "Pixels are as the stream gives them: those of a permuted task look like noise."));
}

function runsFold(section) {
  const header = ["method", "seed", "A_T (%)", "steps", "seconds", "testing", "memory", "bytes", "MB in all", "parameters", "file"];
  const number = (value, digits = 0) => (value === null || value === undefined ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
  const accuracy = (run) => (run.metrics.average_accuracy === undefined ? null : 100 * run.metrics.average_accuracy);
  const rows = section.methods.flatMap((method) => method.runs.map((run) => element("tr", {},
    element("td", { class: "name" }, method.label),
    ...[String(run.seed), number(accuracy(run), 2), number(run.n_steps), number(run.seconds, 1), number(run.seconds_testing, 1), number(run.memory_samples), number(run.memory_bytes), number(run.megabytes, 1), number(run.n_parameters)]
      .map((text) => element("td", { class: "number" }, text)),
    element("td", { class: "path" }, element("a", { href: run.address }, run.path)))));
  const isName = (title) => title === "method" || title === "file";
  return element("details", { class: "fold" }, element("summary", {}, `All ${plural(section.n_runs, "run")}`),
    element("div", { class: "scrolls" }, element("table", {},
      element("thead", {}, element("tr", {}, ...header.map((title) => element("th", { class: isName(title) ? null : "number", scope: "col" }, explained(element("span", { tabindex: WORDS[title] ? 0 : null }, title), title))))),
      element("tbody", {}, ...rows))));
}

function unlike(section) {
  if (!section.unlike.length) return "";
  return element("details", { class: "fold" }, element("summary", {}, "What differs between the rows"),
    element("ul", {}, ...section.unlike.map((line) => element("li", {}, line))));
}

const codeOf = (section) => section.code.map((line) => element("p", { class: "quiet" }, line));

// The method with the highest A_T that did not learn all tasks at once.
function bestIn(section) {
  const [first] = section.methods.filter(({ is_bound, accuracy }) => !is_bound && accuracy.mean[0] !== null).sort((a, b) => b.accuracy.mean[0] - a.accuracy.mean[0]);
  return first && section.methods.length > 1 ? `highest A_T ${(100 * first.accuracy.mean[0]).toFixed(1)} %, ${first.label.split(" (")[0]}` : "";
}

// A section that makes its content when it is opened first: of hundreds of runs few are looked at.
function sectionOf(section, place) {
  const inside = element("div", {});
  const fold = { made: false, drawings: [], section };
  fold.open = () => {
    if (!fold.made) {
      drawings = fold.drawings;
      inside.replaceChildren(...contentOf(section));
      fold.made = true;
    }
    drawAgain();
  };
  fold.box = element("details", { class: "section", id: `section-${place}`, ontoggle: () => { if (fold.box.open) fold.open(); } },
    element("summary", {}, element("h2", {}, section.title), element("span", { class: "quiet" }, [plural(section.n_tasks, "task"), plural(section.methods.length, "method"), plural(section.n_runs, "run"), bestIn(section)].filter(Boolean).join(" · "))), inside);
  folds.push(fold);
  if (DATA.sections.length <= OPEN_AT_MOST) fold.box.open = true;
  return fold.box;
}

function contentOf(section) {
  const hasDrift = section.methods.some((method) => method.curves.first_moved.mean.length > 1);
  const isInTurn = section.methods.some((method) => method.curves.average.mean.length > 1);
  const cards = [
    isInTurn ? accuracyCard(section, "average", "Average accuracy A_t", "Mean over the tasks seen so far, after each task. Bands are ± the deviation over seeds; with many methods only the one pointed at has a band. A dotted level is all tasks learned at once.") : null,
    matrixCard(section),
    isInTurn ? accuracyCard(section, "learned", "Learning accuracy", "Accuracy on each task directly after it was learned, a_jj. It shows what holding on to old tasks costs new ones.") : null,
    costCard(section),
    hasDrift ? driftCard(section, "How far features have moved", "Distance of held-out samples from their place when their task was learned, in units of their spread then.", [["first_moved", "the first task"], ["old_moved", "old tasks on average"]]) : null,
    hasDrift ? driftCard(section, "How far tasks are apart", "Distance between the means of tasks by the same model, in units of their spread.", [["nearest_apart", "the nearest two"], ["mean_apart", "all on average"]]) : null,
    learningCard(section),
    confusionCard(section),
    classesCard(section),
    mapCard(section),
    memoryCard(section),
  ].filter(Boolean);
  const facts = [section.protocol, plural(section.methods.length, "method"), `${section.seeds.length === 1 ? "seed" : "seeds"} ${section.seeds.join(", ")}`,
    plural(section.n_runs, "run")];
  const seeds = section.methods.some((method) => method.runs.length > 1) ? " Means over seeds ± population deviation. Bold: the best beats the next in a paired t-test (p\u00a0<\u00a00.05)." : "";
  const [setting, meaning] = section.setting;
  return [element("p", { class: "quiet" }, `${facts.join(" · ")}.${seeds}`),
    meaning ? element("p", { class: "quiet" }, `Setting ${setting}: ${meaning}.`) : null,
    comparison(section), ...codeOf(section), unlike(section), legend(section), element("div", { class: "cards" }, ...cards), settingsFold(section), runsFold(section)].filter(Boolean);
}

// The settings of two runs side by side, those that differ first.
function settingsFold(section) {
  const runs = section.methods.flatMap((method) => method.runs.map((run) => ({ name: `${method.label}, seed ${run.seed}`, settings: { ...method.settings, seed: String(run.seed) }, run })));
  const host = element("div", {});
  let [one, other] = [runs[0], runs[1] ?? runs[0]];
  const draw = () => {
    const names = [...new Set([...Object.keys(one.settings), ...Object.keys(other.settings)])];
    const differs = (name) => one.settings[name] !== other.settings[name];
    const shown = [...names.filter(differs), ...names.filter((name) => !differs(name))];
    const cell = (settings, name) => element("td", {}, settings[name] ?? "–");
    host.replaceChildren(
      element("div", { class: "scrolls" }, element("table", { class: "settings" },
        element("thead", {}, element("tr", {}, ...["setting", one.name, other.name].map((title) => element("th", { scope: "col" }, title)))),
        element("tbody", {}, ...shown.map((name) => element("tr", { class: differs(name) ? "differs" : null }, element("td", {}, name), cell(one.settings, name), cell(other.settings, name)))))),
      ...[one, other].map(({ name, run }) => element("p", { class: "path" }, `${name}, made again by: `, element("code", {}, run.command))));
  };
  const pick = (name, onPick, start) => {
    const made = choice(name, runs.map((run, i) => [String(i), run.name]), (value) => { onPick(runs[Number(value)]); draw(); });
    made.select.value = String(start);
    return made.box;
  };
  const box = element("details", { class: "fold", ontoggle: draw }, element("summary", {}, "Settings and commands of the runs, two side by side"),
    element("div", { class: "choices" }, pick("one", (run) => { one = run; }, 0), pick("other", (run) => { other = run; }, runs.length > 1 ? 1 : 0)), host);
  return box;
}

// Hide sections in which a word that was typed does not stand.
function search() {
  const input = element("input", { type: "search", id: "search", placeholder: "benchmark, method or setting", "aria-label": "Show sections that contain", oninput: () => filter() });
  const count = element("span", { class: "quiet" });
  const textOf = ({ section }) => [section.title, section.protocol, ...section.methods.map(({ label }) => label)].join(" ");
  function filter() {
    folds.forEach((fold) => { fold.box.hidden = !fits(textOf(fold), input.value); });
    const shown = folds.filter((fold) => !fold.box.hidden).length;
    count.textContent = input.value.trim() ? `${shown} of ${plural(folds.length, "section")}` : "";
  }
  return element("p", { class: "search" }, input, count);
}

function openSection(place) {
  const fold = folds[place];
  fold.box.open = true;
  fold.open();
  fold.box.scrollIntoView();
}

// A table of the sections, where they are few; many are listed by their own lines.
function summary() {
  if (DATA.sections.length > OPEN_AT_MOST) return [versions()];
  const rows = DATA.sections.map((section, place) => element("tr", {},
    element("td", { class: "name" }, element("a", { href: `#section-${place}`, onclick: (event) => { event.preventDefault(); openSection(place); } }, section.title)),
    element("td", { class: "number" }, String(section.n_tasks)), element("td", { class: "number" }, String(section.methods.length)),
    element("td", { class: "number" }, String(section.seeds.length)), element("td", { class: "number" }, String(section.n_runs))));
  const header = ["benchmark", "tasks", "methods", "seeds", "runs"];
  return [
    element("div", { class: "scrolls" }, element("table", {},
      element("thead", {}, element("tr", {}, ...header.map((title, i) => element("th", { class: i ? "number" : null, scope: "col" }, title)))),
      element("tbody", {}, ...rows))),
    versions(),
  ];
}

function versions() {
  return element("details", { class: "fold" }, element("summary", {}, "Versions of the runs"),
    element("dl", {}, ...Object.entries(DATA.versions).flatMap(([name, found]) => [element("dt", {}, name), element("dd", { class: "path" }, found.join(", "))])));
}

function words() {
  return element("details", { class: "fold" }, element("summary", {}, "Words"),
    element("dl", {}, ...Object.entries(WORDS).flatMap(([word, meaning]) => [element("dt", {}, word), element("dd", {}, meaning)])));
}

function themeSwitch() {
  const isDark = () => (document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const named = () => (isDark() ? "☀ light" : "☾ dark");
  const remember = (theme) => { try { localStorage.setItem("holdfast-theme", theme); } catch { /* a page from disk may have no storage */ } };
  try {
    const theme = localStorage.getItem("holdfast-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* as above */ }
  const button = element("button", { type: "button", id: "theme", onclick: () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    remember(document.documentElement.dataset.theme);
    button.textContent = named();
  } }, named());
  return button;
}

// Of a watched page: look every few seconds if it has changed, and load it anew as it was being read.
const PLACE = "holdfast-place";

function follow() {
  const open = () => folds.filter((fold) => fold.box.open).map((fold) => fold.section.title);
  setInterval(async () => {
    try {
      const name = await (await fetch("name")).text();
      if (name === DATA.name) return;
      sessionStorage.setItem(PLACE, JSON.stringify({ open: open(), off: [...off], y: scrollY }));
      location.reload();
    } catch { /* the server has ended: what is here stays */ }
  }, 4000);
  const place = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
  sessionStorage.removeItem(PLACE);
  if (!place) return;
  place.off.forEach((label) => off.add(label));
  folds.filter((fold) => place.open.includes(fold.section.title)).forEach((fold) => { fold.box.open = true; fold.open(); });
  scrollTo(0, place.y);
}

function build() {
  const listed = (title, lines) => (lines.length ? element("div", { class: "problems" }, element("strong", {}, title), element("ul", {}, ...lines.map((line) => element("li", {}, line)))) : null);
  const content = DATA.sections.length
    ? [DATA.sections.length > OPEN_AT_MOST ? search() : null, ...summary(), words(), ...DATA.sections.map(sectionOf)]
    : [element("p", {}, `There are no results of finished runs in ${DATA.folder}: 'holdfast run' and 'holdfast compare' make some.`)];
  document.body.append(...[
    element("header", {}, element("div", {}, element("h1", {}, "Holdfast report"), element("p", { class: "quiet path" }, `Stored results in ${DATA.folder}`)), themeSwitch()),
    listed("Passed over:", DATA.problems), listed("Not finished:", DATA.under_way), ...DATA.notes.map((note) => element("p", { class: "quiet" }, note)),
    ...content, element("div", { id: "tip", role: "status" }),
  ].filter(Boolean));
  drawAgain();
  let width = document.body.clientWidth;
  const drawFor = (isPaper) => { document.documentElement.classList.toggle("paper", isPaper); drawAgain(); };
  addEventListener("beforeprint", () => drawFor(true));
  addEventListener("afterprint", () => drawFor(false));
  addEventListener("resize", () => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    drawAgain();
  });
}

build();
if (DATA.watched) follow();
