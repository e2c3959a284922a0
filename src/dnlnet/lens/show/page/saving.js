
// Save the views, with their names and findings, as one PNG file.

const SAVED_WIDTH = 420; // pixels of a panel
const [TITLE, CAPTION] = [34, 44]; // heights of a view's title and of a panel's caption

function savedImage() {
  const ratio = current().size[1] / current().size[0];
  const high = Math.round(SAVED_WIDTH / ratio), gap = 12;
  const rows = shownViews.map((section) => [...section.querySelectorAll("figure")]);
  const most = Math.max(...rows.map((row) => row.length));
  const canvas = document.createElement("canvas");
  canvas.width = most * (SAVED_WIDTH + gap) + gap;
  canvas.height = rows.length * (TITLE + CAPTION + high + gap) + gap;
  const context = canvas.getContext("2d");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
  const text = (words, x, y, font, tone) => {
    context.font = `${font} system-ui, sans-serif`;
    context.fillStyle = colour(tone);
    context.fillText(words, x, y, SAVED_WIDTH);
  };
  context.fillStyle = colour("--ground");
  context.fillRect(0, 0, canvas.width, canvas.height);
  rows.forEach((row, number) => {
    const top = gap + number * (TITLE + CAPTION + high + gap);
    text(`${shownViews[number].querySelector("h2 b").textContent} · ${current().name}`, gap, top + 20, "600 17px", "--text");
    row.forEach((figure, at) => {
      const left = gap + at * (SAVED_WIDTH + gap);
      text(figure.querySelector("figcaption b").textContent, left, top + TITLE + 14, "600 14px", "--text");
      text(figure.querySelector(".finding").textContent, left, top + TITLE + 34, "13px", "--muted");
      const empty = figure.querySelector(".empty");
      if (empty && !empty.hidden) text(empty.textContent, left, top + TITLE + CAPTION + 20, "13px", "--muted");
      else context.drawImage(figure.querySelector("canvas"), left, top + TITLE + CAPTION, SAVED_WIDTH, high);
    });
  });
  return canvas;
}

function save() {
  draw(); // finish pending updates
  savedImage().toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `attention ${current().name.replace(/[^\p{L}\p{N}. -]+/gu, "_")} x${state.x} y${state.y}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  });
}
