
// What a map shows, in a sentence: how much of it lies on which class, or on how little of the picture.

// Over the cells of a view's maps: which share of each cell every class takes, and how many positions it has.
function classCells(view, labels) {
  view.classCells ??= new Map();
  if (!view.classCells.has(labels)) view.classCells.set(labels, countClasses(view, labels));
  return view.classCells.get(labels);
}

function countClasses(view, labels) {
  const { labelSize: [height, width], classMaps, classes } = picture();
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

// Positions in each cell: those at the right and at the bottom may be smaller.
function weightOf(view, cell) {
  const { size, factor, cells: [, columns] } = view.keys;
  const [row, column] = [Math.floor(cell / columns), cell % columns];
  return Math.min(factor, size[0] - row * factor) * Math.min(factor, size[1] - column * factor);
}

// The share of a map on each class.
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

// The smallest share of the cells that holds half of a map.
function halfOf(values) {
  const falling = Float32Array.from(values).sort().reverse();
  const total = falling.reduce((sum, value) => sum + value, 0);
  let sum = 0, cells = 0;
  while (sum < total / 2) sum += falling[cells++];
  return cells / falling.length;
}

const percent = (share) => (share > 0 && share < 0.01 ? "under 1 %" : `${Math.round(share * 100)} %`);

// A class is that of the point; for a map that is the same for all points, the one it is most in excess on.
function findingOf(view, term, values) {
  if (isNearlyUniform(values)) return content.uniform.text;
  const labels = picture().truth ?? view.prediction;
  if (labels !== null) {
    const shares = sharesOf(view, values, labels), { areas } = classCells(view, labels);
    let label = classAt(labels);
    if (term === "unary") label = shares.reduce((best, _, at) => (shares[at] - areas[at] > shares[best] - areas[best] ? at : best), 0);
    if (label < areas.length) {
      const share = percent(shares[label]).replace("under", "Under");
      return `${share} of it on ${picture().classes.names[label]}, which is ${percent(areas[label])} of the picture`;
    }
  }
  return `Half of it on ${percent(halfOf(values))} of the picture`;
}

// What stands under the point: its class, and for a detector the boxes around it, the smallest first.
function boxesAt(view) {
  const size = ([left, top, right, bottom]) => (right - left) * (bottom - top);
  return view.boxes
    .filter(({ corners: [left, top, right, bottom] }) =>
      state.x + 0.5 >= left && state.x + 0.5 <= right && state.y + 0.5 >= top && state.y + 0.5 <= bottom)
    .sort((one, other) => size(one.corners) - size(other.corners));
}
