
// State of the page, and how it is shown.

const content = JSON.parse(document.getElementById("content").textContent);
const element = (id) => document.getElementById(id);
const state = { image: 0, x: 0, y: 0, pinned: false, a: 0, b: 0, compare: false };
const shownViews = []; // sections of the page: one, or two when comparing
let ready = Promise.resolve();
let tables = {};
let shades = null;
let drawing = 0;
let writing = 0;

const current = () => content.images[state.image];
const chosen = () => (state.compare ? [state.a, state.b] : [state.a]);
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const whole = (text, fallback, count) => {
  const number = Number.parseInt(text, 10);
  return Number.isNaN(number) ? fallback : clamp(number, 0, count - 1);
};

// ---- images and views

async function loadImage() {
  const now = current();
  now.loading ??= (async () => {
    now.element = new Image();
    now.element.src = now.pixels;
    await now.element.decode();
    now.paintings = []; // coloured class maps, made when first shown
    now.classMaps = await Promise.all(now.labels.map(async (text) => new Uint8Array(await unpacked(text))));
    now.dark = darkened(now.element);
  })();
  await Promise.all([now.loading, ...chosen().map((index) => loadView(now.views[index]))]);
}

// Apply a change of image, views or comparison; maps are drawn once unpacked.
function show() {
  const now = current();
  element("image-name").textContent = now.name;
  document.documentElement.style.setProperty("--ratio", now.size[1] / now.size[0]);
  fill(element("image"), content.images.map((each) => each.name), state.image);
  const several = now.views.length > 1;
  const placed = several && now.views.every((view) => view.place);
  for (const id of ["a", "b"]) {
    fill(element(id), now.views.map((view) => view.title), state[id]);
    element(`${id}-place`).replaceChildren(...(placed ? placeChoices(id) : []));
  }
  element("image-choice").hidden = content.images.length === 1;
  element("compare").hidden = !several;
  element("a-choice").hidden = !several || placed;
  element("b-choice").hidden = !state.compare || placed;
  element("a-place").hidden = !placed;
  element("b-place").hidden = !placed || !state.compare;
  element("compare").setAttribute("aria-pressed", state.compare);
  element("main").classList.toggle("two", state.compare);
  const [none, prediction, truth] = element("overlay").options;
  prediction.disabled = now.views.every((view) => view.prediction === null);
  truth.disabled = now.truth === null;
  if (element("overlay").selectedOptions[0].disabled) none.selected = true;
  element("about").replaceChildren(...chosen().map((index) => {
    const view = now.views[index];
    return made("li", several ? `${view.title}: ${view.statement}` : view.statement);
  }), ...notes(now.views[state.a]).map((text) => made("li", text)));
  arrangeSections();
  ready = loadImage().then(draw, failed);
  writeHash();
}

// Return sentences about what the page leaves out.
function notes(view) {
  const tokens = "Tokens without a place in the image (class, registers) are left out: a map sums to 1 over the " +
    "image. Biases and masks count in the combined map only.";
  return [...(view.place ? [tokens] : []), ...(content.note ? [`In this page ${content.note}.`] : [])];
}

// ---- model, layer and head of a view

const PLACES = { model: "Model", layer: "Layer", head: "Head" };

// Return one selector each; the options of a selector depend on those before it.
function placeChoices(id) {
  const { views } = current();
  const now = views[state[id]].place;
  let rest = views;
  return Object.entries(PLACES).flatMap(([part, name]) => {
    const values = [...new Set(rest.map((view) => view.place[part]))];
    rest = rest.filter((view) => view.place[part] === now[part]);
    if (part === "model" && values.length === 1) return [];
    const label = made("label", `${name} `);
    const select = label.appendChild(document.createElement("select"));
    Object.assign(select, { id: `${id}-${part}`, disabled: values.length === 1 });
    fill(select, values, values.indexOf(now[part]));
    select.addEventListener("change", () => choosePlace(id, part, values[select.value]));
    return [label];
  });
}

// Switch to the view with this model, layer or head that is most like the current one.
function choosePlace(id, part, value) {
  const now = { ...current().views[state[id]].place, [part]: value };
  const names = Object.keys(PLACES);
  const before = names.slice(0, names.indexOf(part) + 1);
  const alike = ({ place }) => names.filter((name) => place[name] === now[name]).length;
  const fitting = current().views.filter(({ place }) => before.every((name) => place[name] === now[name]));
  fitting.sort((one, other) => alike(other) - alike(one));
  state[id] = current().views.indexOf(fitting[0]);
  show();
  element(`${id}-${part}`).focus();
}

function fill(select, names, index) {
  select.replaceChildren(...names.map((name, value) => new Option(name, value)));
  select.value = index;
}

function made(tag, text, className = "") {
  const node = document.createElement(tag);
  node.textContent = text;
  node.className = className;
  return node;
}

function arrangeSections() {
  while (shownViews.length > chosen().length) shownViews.pop().remove();
  while (shownViews.length < chosen().length) {
    const section = element("view").content.firstElementChild.cloneNode(true);
    element("main").insertBefore(section, element("main").querySelector(".side"));
    shownViews.push(section);
    for (const canvas of section.querySelectorAll("canvas")) watch(canvas);
  }
}

// ---- drawing

function redraw() {
  if (!drawing) drawing = requestAnimationFrame(draw);
}

function draw() {
  cancelAnimationFrame(drawing);
  drawing = 0;
  const views = chosen().map((index) => current().views[index]);
  if (!current().dark || !views.every((view) => view.decoded)) return;
  element("pin").setAttribute("aria-pressed", state.pinned);
  shownViews.forEach((section, at) => drawView(section, views[at]));
}

function drawView(section, view) {
  const [name, note] = section.querySelector("h2").children;
  name.textContent = view.title;
  note.textContent = describe(view);
  const query = queryOf(view);
  for (const place of section.querySelectorAll(".readout")) place.replaceChildren(...facts(view, query));
  for (const figure of section.querySelectorAll("figure")) {
    const canvas = figure.querySelector("canvas");
    const pixelRatio = Math.min(window.devicePixelRatio || 1, 2);
    canvas.width = Math.round(canvas.clientWidth * pixelRatio);
    canvas.height = Math.round(canvas.clientHeight * pixelRatio);
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    const cover = (image) => context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const term = figure.dataset.panel;
    if (term === "image") {
      cover(current().element);
      const over = overlayOf(view);
      if (over) cover(over);
      const [height, width] = current().size;
      figure.querySelector("figcaption span").replaceChildren(`${width} × ${height}`, made("i", " pixels"));
      drawBoxes(context, view.boxes, current(), pixelRatio);
      drawPoint(context, ...marks(canvas, view, query), pixelRatio);
      figure.querySelector(".finding").textContent = pointText(view);
    } else {
      const values = valuesOf(view, term, query.cell);
      const empty = figure.querySelector(".empty");
      empty.hidden = values !== null;
      empty.textContent = `This block has no ${term} map.`;
      figure.querySelector("figcaption span").replaceChildren(...(values ? strength(values) : []));
      figure.querySelector(".finding").textContent = values ? findingOf(view, term, values) : "";
      if (!values) continue;
      cover(current().dark);
      cover(heatOf(view, values, element("floor").value, current().size[1] / current().size[0], shades));
      drawPosition(context, marks(canvas, view, query)[1], pixelRatio);
    }
  }
}

function describe(view) {
  const { pairwise, unary } = view.parts;
  if (view.coupled) return "both maps multiplied";
  if (pairwise && unary) return "both maps added";
  return pairwise ? "the pairwise map alone" : "the unary map alone";
}

// Return minimum and maximum in multiples of uniform attention, which is the mean.
function strength(values) {
  const mean = meanOf(values);
  const [low, high] = rangeOf(values).map((value) => value / mean);
  const short = (times) => (times < 0.005 ? "0" : times < 9.995 ? times.toFixed(2) : Math.round(times));
  return [`${short(low)}–${short(high)} ×`, made("i", " uniform")];
}

function isNearlyUniform(values) {
  return rangeOf(values)[1] <= content.uniform.most * meanOf(values);
}

function overlayOf(view) {
  const { truth, classMaps, paintings, labelSize, classes } = current();
  const wanted = { prediction: view.prediction, truth, none: null }[element("overlay").value];
  if (wanted === null) return null;
  paintings[wanted] ??= painted(classMaps[wanted], labelSize, classes.palette);
  return paintings[wanted];
}

// Return the chosen point and the cell of the query, in pixels of a canvas.
function marks(canvas, view, { row, column }) {
  const [height, width] = current().size;
  const down = canvas.height / (view.covered[0] * view.queries.size[0]);
  const across = canvas.width / (view.covered[1] * view.queries.size[1]);
  const point = { x: ((state.x + 0.5) / width) * canvas.width, y: ((state.y + 0.5) / height) * canvas.height };
  const box = { x: column.middle * across, y: row.middle * down, width: across, height: down };
  return [point, box];
}

// Return the query whose map is shown for the chosen point.
function queryOf(view) {
  const { size, factor, cells } = view.queries;
  const [row, column] = [state.y, state.x].map((pixel, axis) =>
    locate(pixel, current().size[axis], view.covered[axis], size[axis], factor));
  return { row, column, cell: row.cell * cells[1] + column.cell };
}

// ---- text

function facts(view, query) {
  const { truth } = current();
  const known = [
    fact("pixel", `x ${state.x}, y ${state.y}`),
    fact("map of", `row ${query.row.middle}, column ${query.column.middle} of ${view.queries.size.join(" × ")}`),
  ];
  if (view.prediction !== null) known.push(classFact("predicted", view.prediction));
  if (truth !== null) known.push(classFact("true", truth));
  for (const { label, score } of boxesAt(view)) known.push(classChip("box of", label, ` ${score.toFixed(2)}`));
  return known;
}

// Say where the point is.
function pointText(view) {
  const { truth, classes } = current();
  const [box] = boxesAt(view);
  if (box) return `The point is in a box of ${classes.names[box.label]}`;
  const label = truth === null && view.prediction === null ? -1 : classAt(truth ?? view.prediction);
  return classes && label in classes.names ? `The point is on ${classes.names[label]}` : `The point is at ${state.x}, ${state.y}`;
}

function fact(name, ...values) {
  const node = made("span", "");
  node.append(made("i", `${name} `), ...values);
  return node;
}

function classFact(name, index) {
  const label = classAt(index);
  return label in current().classes.names ? classChip(name, label) : fact(name, "no class");
}

function classChip(name, label, more = "") {
  const { names, palette } = current().classes;
  const chip = made("span", "", "chip");
  chip.style.background = `rgb(${palette[label].join(" ")})`;
  return fact(name, chip, names[label], more);
}

function classAt(index) {
  const { size, labelSize, classMaps } = current();
  const [row, column] = [state.y, state.x].map((pixel, axis) =>
    Math.floor(((pixel + 0.5) / size[axis]) * labelSize[axis]));
  return classMaps[index][row * labelSize[1] + column];
}

function announce() {
  const told = [...document.querySelectorAll(".stage .readout, figure:not(.stage) .finding")];
  const words = (each) => [...each.children].map((one) => one.textContent).join(", ") || each.textContent;
  element("live").textContent = told.map(words).filter(Boolean).join("; ");
}

function failed(error) {
  element("error").textContent = typeof DecompressionStream === "undefined"
    ? "This browser cannot unpack the maps; use one from 2023 or later."
    : `The page cannot be shown: ${error.message}`;
  element("error").hidden = false;
}
