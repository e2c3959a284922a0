// Draw the equations of a page, also when the next one is shown without loading the site again.
document$.subscribe(({ body }) => {
  renderMathInElement(body, {
    delimiters: [{ left: "\\(", right: "\\)", display: false }, { left: "\\[", right: "\\]", display: true }],
  });
});
