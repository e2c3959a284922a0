
// Describe a map in one sentence: its share on a class, or how small an area holds half of it.

// Return the share of every class in each cell of a view's maps, and in the whole image.
function classCells(view, labels) {
  view.classCells ??= new Map();
  if (!view.classCells.has(labels)) view.classCells.set(labels, countClasses(view, labels));
  return view.classCells.get(labels);
}

function countClasses(view, labels) {
  const { labelSize: [height, width], classMaps, classes } = current();
  const { size, factor, cells: [rows, columns] } = view.keys;
  const count = classes.names.length;
  const shares = new Float32Array(rows * columns * count), pixels = new Float32Array(rows * columns);
  const areas = new Float32Array(count);
  for (let y = 0, at = 0; y < height; y++) {
    const row = locate(y, height, view.covered[0], size[0], factor).cell;
    for (let x = 0; x < width; x++, at++) {
      const cell = row * columns + locate(x, width, view.covered[1], size[1], factor).cell;
      const label = classMaps[labels][at];
      pixels[cell] += 1;
      if (label < count) {
        shares[cell * count + label] += 1;
        areas[label] += 1 / (height * width);
      }
    }
  }
  for (let at = 0; at < shares.length; at++) shares[at] /= pixels[Math.floor(at / count)] || 1;
  return { count, shares, areas };
}

// Return the number of positions in a cell; cells at the right and bottom edges may be smaller.
function weightOf(view, cell) {
  const { size, factor, cells: [, columns] } = view.keys;
  const [row, column] = [Math.floor(cell / columns), cell % columns];
  return Math.min(factor, size[0] - row * factor) * Math.min(factor, size[1] - column * factor);
}

// Return the share of a map on each class.
function sharesOf(view, values, labels) {
  const { count, shares } = classCells(view, labels);
  const found = new Float32Array(count);
  let total = 0;
  values.forEach((value, cell) => {
    const mass = value * weightOf(view, cell);
    total += mass;
    for (let label = 0; label < count; label++) found[label] += mass * shares[cell * count + label];
  });
  return found.map((mass) => mass / total);
}

// Return the smallest share of cells that holds half of a map.
function halfOf(values) {
  const falling = Float32Array.from(values).sort().reverse();
  const total = falling.reduce((sum, value) => sum + value, 0);
  let sum = 0, cells = 0;
  while (sum < total / 2) sum += falling[cells++];
  return cells / falling.length;
}

const percent = (share) => (share > 0 && share < 0.01 ? "under 1 %" : `${Math.round(share * 100)} %`);

// Use the class of the point; for the unary map, the class whose share exceeds its area most.
function findingOf(view, term, values) {
  if (isNearlyUniform(values)) return content.uniform.text;
  const labels = current().truth ?? view.prediction;
  if (labels !== null) {
    const shares = sharesOf(view, values, labels), { areas } = classCells(view, labels);
    let label = classAt(labels);
    if (term === "unary") label = shares.reduce((best, _, at) => (shares[at] - areas[at] > shares[best] - areas[best] ? at : best), 0);
    if (label < areas.length) {
      const share = percent(shares[label]).replace("under", "Under");
      return `${share} of it on ${current().classes.names[label]}, which covers ${percent(areas[label])} of the image`;
    }
  }
  return `Half of it on ${percent(halfOf(values))} of the image`;
}

// Return the boxes of a detector that contain the point, smallest first.
function boxesAt(view) {
  const size = ([left, top, right, bottom]) => (right - left) * (bottom - top);
  return view.boxes
    .filter(({ corners: [left, top, right, bottom] }) =>
      state.x + 0.5 >= left && state.x + 0.5 <= right && state.y + 0.5 >= top && state.y + 0.5 <= bottom)
    .sort((one, other) => size(one.corners) - size(other.corners));
}
