"use strict";

// Decode stored maps and draw them as heat over an image.

const HEAT_WIDTH = 420; // pixels of a heat map before it is scaled to its panel: fast enough to follow the pointer
const SHADES = 1024;

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// Unpack the maps of a view when it is first shown.
function loadView(view) {
  view.loading ??= (async () => {
    const decoded = {};
    for (const [term, part] of Object.entries(view.parts)) {
      const [codes, low, high] = await Promise.all([part.codes, part.low, part.high].map(unpacked));
      decoded[term] = { codes: new Uint8Array(codes), low: new Float32Array(low), high: new Float32Array(high) };
    }
    view.decoded = decoded;
  })();
  return view.loading;
}

// Return the values of a term's map for a query, row by row, or null if the block has no such term.
function valuesOf(view, term, cell) {
  const part = view.decoded[term];
  if (part) return decode(part, part.low.length === 1 ? 0 : cell, view.keys.cells);
  if (term !== "combined") return null;
  const terms = ["pairwise", "unary"].map((name) => valuesOf(view, name, cell)).filter(Boolean);
  return terms.length === 1 ? terms[0] : terms[0].map((value, key) => value + terms[1][key]);
}

// Return minimum and maximum; there may be too many values for Math.min(...values).
function rangeOf(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function decode({ codes, low, high }, index, [rows, columns]) {
  const start = index * rows * columns;
  const values = new Float32Array(rows * columns);
  const range = high[index] - low[index];
  for (let key = 0; key < values.length; key++) values[key] = low[index] + (codes[start + key] / 255) ** 2 * range;
  return values;
}

// Return a pixel's position, its cell and the cell's middle position along one axis.
function locate(pixel, length, share, count, factor) {
  const position = Math.min(Math.floor(((pixel + 0.5) / length) * share * count), count - 1);
  const cell = Math.floor(position / factor);
  const start = cell * factor;
  const stop = Math.min(start + factor, count);
  return { position, cell, start, stop, middle: Math.floor((start + stop - 1) / 2) };
}

// Return the middle pixel of a position along one axis; the last pixel if the position lies in the padding.
function pixelOf(position, length, share, count) {
  return Math.max(0, Math.min(length - 1, Math.floor(((position + 0.5) / (count * share)) * length)));
}

// Prepare linear interpolation between cell centres along one axis: two cells and a weight per output pixel.
function between(pixels, share, count, factor) {
  const cells = Math.ceil(count / factor);
  const middle = (cell) => (cell * factor + Math.min((cell + 1) * factor, count)) / 2;
  const low = new Int32Array(pixels), high = new Int32Array(pixels), weight = new Float32Array(pixels);
  for (let pixel = 0, cell = 0; pixel < pixels; pixel++) {
    const place = ((pixel + 0.5) / pixels) * share * count;
    while (cell < cells - 1 && middle(cell + 1) <= place) cell++;
    low[pixel] = cell;
    high[pixel] = Math.min(cell + 1, cells - 1);
    const gap = middle(high[pixel]) - middle(cell);
    weight[pixel] = gap > 0 ? Math.max(0, (place - middle(cell)) / gap) : 0;
  }
  return { low, high, weight };
}

const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// Return the function that gives a value its place between the first shade, 0, and the last, 1.
function placing(values, scale) {
  if (scale === "uniform") {
    const half = content.heat.half * meanOf(values) || 1;
    return (value) => value / (value + half);
  }
  const [low, high] = rangeOf(values), floor = scale === "weakest" ? low : 0, range = high - floor || 1;
  return (value) => (value - floor) / range;
}

function heatOf(view, values, scale, ratio, shades) {
  const width = HEAT_WIDTH, height = Math.max(1, Math.round(HEAT_WIDTH / ratio));
  const { size, factor, cells } = view.keys;
  view.axes ??= [between(height, view.covered[0], size[0], factor), between(width, view.covered[1], size[1], factor)];
  const [down, across] = view.axes;
  const place = placing(values, scale);
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let y = 0, at = 0; y < height; y++) {
    const top = down.low[y] * cells[1], bottom = down.high[y] * cells[1], v = down.weight[y];
    for (let x = 0; x < width; x++, at++) {
      const left = across.low[x], right = across.high[x], u = across.weight[x];
      const upper = values[top + left] + (values[top + right] - values[top + left]) * u;
      const lower = values[bottom + left] + (values[bottom + right] - values[bottom + left]) * u;
      pixels[at] = shades[(place(upper + (lower - upper) * v) * (SHADES - 1)) | 0];
    }
  }
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Return colours from weak to strong, with the four bytes of a pixel as one number.
function shadesOf(table, gamma, opacity) {
  const bytes = new Uint8ClampedArray(SHADES * 4);
  for (let shade = 0; shade < SHADES; shade++) {
    const entry = Math.round((shade / (SHADES - 1)) ** gamma * 255);
    // The image shows through where attention is low.
    bytes.set([...table.subarray(entry * 3, entry * 3 + 3), Math.round(opacity * entry)], shade * 4);
  }
  return new Uint32Array(bytes.buffer);
}

// Return the image in dark grey, so that heat stands out.
function darkened(image) {
  const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const data = context.getImageData(0, 0, canvas.width, canvas.height);
  for (let at = 0; at < data.data.length; at += 4) {
    const grey = 0.3 * data.data[at] + 0.59 * data.data[at + 1] + 0.11 * data.data[at + 2];
    data.data.fill(0.45 * grey, at, at + 3);
  }
  context.putImageData(data, 0, 0);
  return canvas;
}

function painted(labels, [height, width], palette) {
  const image = new ImageData(width, height);
  for (let at = 0; at < labels.length; at++) {
    const colour = palette[labels[at]];
    if (colour) image.data.set([...colour, 165], at * 4);
  }
  const canvas = new OffscreenCanvas(width, height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

// Draw a ring in two tones, visible on any background.
function drawRing(context, x, y, radius, pixelRatio) {
  context.beginPath();
  context.arc(x, y, radius * pixelRatio, 0, 2 * Math.PI);
  for (const [tone, width] of [["#000b", 4.5], ["#fff", 2]]) {
    context.strokeStyle = tone;
    context.lineWidth = width * pixelRatio;
    context.stroke();
  }
}

// Draw the point on the image, and the cell whose map is shown.
function drawPoint(context, point, box, pixelRatio) {
  context.fillStyle = "#ffd447";
  context.strokeStyle = "#000b";
  context.lineWidth = pixelRatio;
  context.globalAlpha = 0.6;
  context.fillRect(box.x, box.y, box.width, box.height);
  context.strokeRect(box.x, box.y, box.width, box.height);
  context.globalAlpha = 1;
  drawRing(context, point.x, point.y, 11, pixelRatio);
}

// Draw the boxes of a detector on the image, in the colours of their classes.
function drawBoxes(context, boxes, { size: [height, width], classes }, pixelRatio) {
  const { canvas } = context;
  for (const { label, corners: [left, top, right, bottom] } of boxes) {
    const box = [left / width * canvas.width, top / height * canvas.height,
      (right - left) / width * canvas.width, (bottom - top) / height * canvas.height];
    for (const [tone, thickness] of [["#000b", 4], [`rgb(${classes.palette[label].join(" ")})`, 2]]) {
      context.strokeStyle = tone;
      context.lineWidth = thickness * pixelRatio;
      context.strokeRect(...box);
    }
  }
}

// Draw the query position on a map.
function drawPosition(context, box, pixelRatio) {
  drawRing(context, box.x + box.width / 2, box.y + box.height / 2, 6, pixelRatio);
}
