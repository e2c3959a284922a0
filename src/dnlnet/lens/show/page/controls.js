
// Input: pointer, keys, controls and the address of the page.

function choosePoint(x, y, pinned = state.pinned) {
  const [height, width] = current().size;
  Object.assign(state, { x: clamp(x, 0, width - 1), y: clamp(y, 0, height - 1), pinned });
  redraw();
  writeHash();
}

function chooseImage(index) {
  state.image = index;
  const { start: [y, x], views, compare } = current();
  const last = views.length - 1;
  Object.assign(state, { x, y, a: Math.min(state.a, last), b: Math.min(state.b, last), compare });
  if (compare && state.a === state.b) Object.assign(state, { a: 0, b: 1 });
  show();
}

function toggleCompare() {
  const count = current().views.length;
  if (count < 2) return;
  state.compare = !state.compare;
  if (state.a === state.b) state.b = (state.a + 1) % count;
  show();
}

function toggleTheme() {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  element("theme").textContent = theme === "dark" ? "Light" : "Dark";
  element("theme").title = `Change to ${theme === "dark" ? "light" : "dark"} colours (t)`;
}

function setPinned(pinned) {
  state.pinned = pinned;
  redraw();
}

// Move the point to the middle of a query cell some cells away.
function step(down, across) {
  const view = current().views[state.a];
  const { size, factor, cells } = view.queries;
  const { row, column } = queryOf(view);
  const [y, x] = [row.cell + down, column.cell + across].map((moved, axis) => {
    const start = clamp(moved, 0, cells[axis] - 1) * factor;
    const middle = Math.floor((start + Math.min(start + factor, size[axis]) - 1) / 2);
    return pixelOf(middle, current().size[axis], view.covered[axis], size[axis]);
  });
  choosePoint(x, y, true);
  draw();
  announce();
}

// ---- the link

const DISPLAY = ["colours", "floor", "overlay", "gamma", "opacity"];
const defaults = {};

function hash() {
  const { x, y, a, b, compare } = state;
  const changed = DISPLAY.filter((id) => element(id).value !== defaults[id]).map((id) => [id, element(id).value]);
  // "picture" keeps links to earlier pages valid.
  return `#${new URLSearchParams({ picture: state.image, x, y, a, ...(compare ? { b } : {}), ...Object.fromEntries(changed) })}`;
}

function writeHash() {
  clearTimeout(writing);
  // Not on every movement: browsers throttle pages that keep changing their address.
  writing = setTimeout(() => {
    try { history.replaceState(null, "", hash()); } catch { /* an embedded page has no address of its own */ }
  }, 200);
}

function readHash(address) {
  const given = new URLSearchParams(new URL(address).hash.slice(1));
  state.image = whole(given.get("picture"), state.image, content.images.length);
  const { size: [height, width], views } = current();
  const { start: [y, x], compare, view } = current();
  state.x = whole(given.get("x"), x, width);
  state.y = whole(given.get("y"), y, height);
  state.a = whole(given.get("a"), view, views.length);
  state.compare = (given.has("b") && views.length > 1) || (compare && !given.has("a"));
  state.b = whole(given.get("b"), Math.min(1, views.length - 1), views.length);
  state.pinned = given.has("x") && given.has("y");
  for (const id of DISPLAY) {
    const control = element(id), before = control.value;
    control.value = given.get(id) ?? defaults[id];
    if (!control.value) control.value = before; // not an option
  }
  changeDisplay();
  show();
}

async function copyLink() {
  const address = location.href.split("#")[0] + hash();
  let done = true;
  try { await navigator.clipboard.writeText(address); } catch {
    const field = document.body.appendChild(made("textarea", address, "unseen"));
    field.select();
    done = document.execCommand("copy");
    field.remove();
  }
  element("copy").textContent = done ? "Copied" : "No access";
  element("live").textContent = done ? "Link copied" : "The browser does not allow copying";
  setTimeout(() => { element("copy").textContent = "Copy link"; }, 1600);
}

// ---- pointer and keys

function watch(canvas) {
  const pixel = (event) => {
    const box = canvas.getBoundingClientRect();
    const [height, width] = current().size;
    const x = Math.floor(((event.clientX - box.left) / box.width) * width);
    return [x, Math.floor(((event.clientY - box.top) / box.height) * height)];
  };
  const onImage = canvas.closest(".stage") !== null;
  let finger = null; // where it touched down, and the state before
  canvas.addEventListener("pointerdown", (event) => {
    finger = event.pointerType === "mouse" || !onImage ? null : { from: event, before: { ...state }, moves: false };
  });
  // Moving a finger up or down scrolls the page; moving it sideways moves the point.
  canvas.addEventListener("pointercancel", () => {
    if (finger?.moves) choosePoint(finger.before.x, finger.before.y, finger.before.pinned);
    finger = null;
  });
  canvas.addEventListener("pointerup", () => { finger = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (event.pointerType === "mouse" && !state.pinned) choosePoint(...pixel(event));
    if (event.pointerType === "mouse" || !finger) return;
    const [across, down] = [event.clientX - finger.from.clientX, event.clientY - finger.from.clientY];
    finger.moves ||= Math.abs(across) > Math.max(6, Math.abs(down));
    if (finger.moves) choosePoint(...pixel(event), true);
  });
  canvas.addEventListener("click", (event) => {
    const [x, y] = pixel(event);
    const [height, width] = current().size;
    const box = canvas.getBoundingClientRect();
    const away = Math.hypot(((x - state.x) / width) * box.width, ((y - state.y) / height) * box.height);
    if (event.pointerType !== "touch" && state.pinned && away < 8) setPinned(false);
    else choosePoint(x, y, true);
    draw();
    announce();
    if (event.pointerType === "touch" && onImage) showMaps(canvas);
  });
  if (onImage) canvas.addEventListener("keydown", moveByKey);
}

// On a small screen the maps are below the image: scroll the first row into view.
function showMaps(canvas) {
  const map = canvas.closest(".view").querySelector("figure:not(.stage):has(.empty[hidden])");
  const smooth = matchMedia("(prefers-reduced-motion: no-preference)").matches;
  map?.scrollIntoView({ block: "nearest", behavior: smooth ? "smooth" : "auto" });
}

function moveByKey(event) {
  const far = event.shiftKey ? 5 : 1;
  const moves = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far] };
  if (event.key in moves) step(...moves[event.key]);
  else if (event.key === "Enter" || event.key === " ") setPinned(!state.pinned);
  else return;
  event.preventDefault();
}

function pressKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || element("help-text").open) return;
  if (event.target.tagName === "SELECT") return; // letters select an option there
  const number = Number(event.key);
  if (number >= 1 && number <= current().views.length) {
    state.a = number - 1;
    show();
  } else if (event.key === "c") toggleCompare();
  else if (event.key === "s") save();
  else if (event.key === "t") toggleTheme();
  else if (event.key === "?") element("help-text").showModal();
  else if (event.key === "Escape") setPinned(false);
}

// Return the places and names of the ticks of the legend.
function ticks(scale) {
  const { half, ticks: multiples } = content.heat;
  if (scale === "uniform") return multiples.map((times) => [times / (times + half), times]);
  return scale === "0" ? [[0, "0"], [0.5, "50 %"], [1, "max"]] : [[0, "min"], [0.5, "half way"], [1, "max"]];
}

function changeDisplay() {
  const gamma = Number(element("gamma").value), opacity = Number(element("opacity").value);
  element("gamma-value").textContent = gamma.toFixed(2);
  element("opacity-value").textContent = `${Math.round(opacity * 100)} %`;
  shades = shadesOf(tables[element("colours").value], gamma, opacity);
  const bar = new ImageData(SHADES, 1);
  new Uint32Array(bar.data.buffer).set(shades);
  element("bar").getContext("2d").putImageData(bar, 0, 0);
  element("ticks").replaceChildren(...ticks(element("floor").value).map(([place, name]) => {
    const tick = made("span", name);
    tick.style.left = `${100 * place}%`;
    return tick;
  }));
  element("unit").hidden = element("floor").value !== "uniform";
  redraw();
  writeHash();
}

// ---- start

async function begin() {
  const unpack = async ([name, text]) => [name, new Uint8Array(await unpacked(text))];
  tables = Object.fromEntries(await Promise.all(Object.entries(content.colours).map(unpack)));
  fill(element("colours"), Object.keys(tables), "");
  for (const option of element("colours").options) option.value = option.text;
  element("colours").selectedIndex = 0;
  for (const id of DISPLAY) defaults[id] = element(id).value;
  readHash(location.href);
  await ready;
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
element("image").addEventListener("change", (event) => chooseImage(Number(event.target.value)));
for (const id of ["a", "b"]) {
  element(id).addEventListener("change", (event) => { state[id] = Number(event.target.value); show(); });
}
for (const id of DISPLAY) element(id).addEventListener("input", changeDisplay);
element("compare").addEventListener("click", toggleCompare);
element("pin").addEventListener("click", () => setPinned(!state.pinned));
element("theme").addEventListener("click", toggleTheme);
element("copy").addEventListener("click", copyLink);
element("save").addEventListener("click", save);
element("help").addEventListener("click", () => element("help-text").showModal());
document.addEventListener("keydown", pressKey);
// The requested address: a delayed update may have replaced it by now.
window.addEventListener("hashchange", (event) => readHash(event.newURL));
new ResizeObserver(redraw).observe(element("main"));
const begun = begin().catch(failed);

// For tests and the browser's console.
window.explorer = {
  get ready() { return begun.then(() => ready); },
  state: () => {
    const { row, column } = queryOf(current().views[state.a]);
    return { ...state, position: [row.position, column.position], query: [row.middle, column.middle] };
  },
  map: (index, term) => {
    const values = valuesOf(current().views[index], term, queryOf(current().views[index]).cell);
    return values && Array.from(values);
  },
};
