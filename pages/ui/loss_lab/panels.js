// A matrix as a grid of cells that is built once; a repaint writes only what changed.

const signed = (value, digits = 3) => (value > 0 ? "+" : "") + number(value, digits);
// A cell is [row, column] of queries and documents, or [row, column, side] of the texts of one side.
const AXES = { queries: ["query", "query"], documents: ["document", "document"] };
const axesOf = (side) => AXES[side] ?? ["query", "document"];
const cellName = ([i, j, side]) => axesOf(side).map((kind, axis) => `${kind} ${[i, j][axis] + 1}`).join(", ");
const isSameCell = (a, b) => Boolean(a && b && a[0] === b[0] && a[1] === b[1] && a[2] === b[2]);
const FINEST_SHADE = 255;
// The background and text color of each shade of a color scale.
const shadesOf = (colors) => Array.from({ length: FINEST_SHADE + 1 }, (_, index) => {
  const color = colorAt(colors, index / FINEST_SHADE);
  return { fill: `rgb(${color})`, ink: inkOn(color) };
});
const setText = (node, text) => { if (node.textContent !== text) node.textContent = text; };

function symmetricRange(values, least) {
  const largest = Math.max(least, ...values.flat().map(Math.abs));
  return [-largest, largest];
}
// The color scale and the range of values of each kind of matrix. Gradients have a fixed range, so that pictures compare.
const KINDS = {
  similarity: { scale: "cosine", range: (values) => symmetricRange(values, 1) },
  probability: { scale: "probability", range: () => [0, 1] },
  gradient: { scale: "gradient", range: (_, lab) => [-lab.gradientLimit, lab.gradientLimit] },
  change: { scale: "gradient", range: (values) => symmetricRange(values, 1e-6).reverse() }, // an increase is green
};
// What the marks of a cell mean, by CSS class.
const MARKS = {
  pair: "positive pair", negative: "negative pair", positive: "another positive",
  copy: "repeated text: false negative", reworded: "same answer in other words: false negative", out: "excluded", masked: "excluded by the false-negative mask",
};

class Panel {
  // kind: a key of KINDS. hasTexts: whether the axes have texts, not only numbers. side: of the texts of one side.
  constructor(kind, lab, hasTexts = false, side = undefined) {
    Object.assign(this, { kind, lab, side, size: lab.batch.queries.length });
    const texts = hasTexts ? axesOf(side).map((axis) => lab.batch[`${axis}_texts`]) : null;
    this.title = element("div", { class: "title" });
    this.bar = element("span", { class: "bar" });
    this.bar.style.background = `linear-gradient(to ${kind === "change" ? "left" : "right"}, ${lab.colors[KINDS[kind].scale]})`;
    [this.low, this.high, this.unit] = ["low", "high", "unit"].map((name) => element("span", { class: name }));
    const about = "The fixed color scale ends at the largest possible gradient of one direction at temperature 0.1.";
    this.rescale = element("button", { type: "button", class: "toggle", title: about, onclick: () => this.lab.rescale() });
    this.legend = element("div", { class: "legend" }, this.low, this.bar, this.high, this.unit,
      ...(kind === "gradient" && !side ? [this.rescale] : [])); // it rescales the gradients of all sides
    this.cells = matrix(this.size, this.size, (i, j) => this.buildCell(i, j));
    Object.assign(this, { highlighted: [], marked: matrix(this.size, this.size, () => "") });
    this.grid = element("div", { class: texts ? "matrix with-texts" : "matrix", role: "grid" }, ...this.buildRows(texts));
    this.grid.style.setProperty("--size", this.size);
    this.root = element("section", { class: `panel ${kind}${this.size > 8 ? " large" : ""}` }, this.title, this.grid, this.legend);
  }

  buildRows(texts) {
    const header = (text, index, kind) => element(
      "div", { class: `head ${kind}`, role: `${kind}header`, title: text ?? "" },
      element("span", { class: "words" }, text ? `${index + 1}  ${text}` : `${index + 1}`));
    const row = (...cells) => element("div", { class: "line", role: "row" }, ...cells);
    const columns = this.cells.map((_, j) => header(texts?.[1][j], j, "column"));
    return [
      row(element("div", { class: "corner" }), ...columns),
      ...this.cells.map((cells, i) => row(header(texts?.[0][i], i, "row"), ...cells)),
    ];
  }

  buildCell(i, j) {
    const index = this.side ? [i, j, this.side] : [i, j];
    const cell = element("div", {
      class: "cell", role: "gridcell", tabindex: i + j === 0 ? 0 : -1, "data-cell": `${i},${j}`, "aria-selected": false,
      onpointerenter: () => this.lab.hover(index, cell),
      onpointerleave: () => this.lab.hover(null),
      onfocus: () => {
        this.cells.forEach((row, a) => row.forEach((cell, b) => { cell.tabIndex = a === i && b === j ? 0 : -1; }));
        this.lab.hover(index, cell);
      },
      onblur: () => this.lab.hover(null),
      onclick: () => this.lab.pin(index),
      onkeydown: (event) => this.onKey(event, index),
    });
    return cell;
  }

  onKey(event, index) {
    const step = ARROWS[event.key], [i, j] = index;
    if (step) this.cells[i + step[0]]?.[j + step[1]]?.focus();
    else if (event.key === "Enter" || event.key === " ") this.lab.pin(index);
    else if (event.key === "Escape") this.lab.pin(null);
    else return;
    event.preventDefault();
  }

  // marks: the CSS classes of each cell, null if they are unchanged; describe(value): text for screen readers.
  paint({ values, title, marks, describe, unit }) {
    const { scale, range } = KINDS[this.kind], shades = this.lab.shades[scale];
    const [low, high] = range(values, this.lab);
    const cellDigits = this.kind === "gradient" && high < 0.1 ? 3 : 2, limit = Math.abs(high);
    // Some users cannot distinguish green and orange, so cells that are too small for numbers show the sign.
    const hasNumbers = this.size <= 8, hasText = hasNumbers || scale === "gradient";
    const sign = (value) => (Number(value.toFixed(cellDigits)) === 0 ? "" : value > 0 ? "+" : "\u2212");
    if (marks) this.marked = marks;
    setText(this.title, title);
    this.grid.setAttribute("aria-label", title);
    values.forEach((row, i) => row.forEach((value, j) => {
      const cell = this.cells[i][j];
      cell.value = value;
      const shade = Math.round(clamp((value - low) / (high - low), 0, 1) * FINEST_SHADE);
      if (cell.shade !== shade) {
        cell.shade = shade;
        cell.style.backgroundColor = shades[shade].fill;
        if (hasText) cell.style.color = shades[shade].ink;
      }
      if (hasText) setText(cell, hasNumbers ? number(value, cellDigits) : sign(value));
      if (marks) cell.className = `cell ${marks[i][j]}`;
      if (this.lab.isDragging) return;
      const name = cellName([i, j, this.side]);
      cell.setAttribute("aria-label", [`${name}: ${describe(value)}`, ...this.meanings(i, j)].join("; "));
    }));
    const digits = limit < 0.1 ? 3 : limit < 10 ? 2 : 0;
    setText(this.low, number(Math.min(low, high), digits));
    setText(this.high, number(Math.max(low, high), digits));
    setText(this.unit, this.kind === "gradient" && !hasNumbers ? `${unit}; + push, \u2212 pull` : unit);
    if (this.kind === "gradient") setText(this.rescale, this.lab.isRescaled ? "Fixed color scale" : "Rescale colors");
  }

  // The meanings of the marks of a cell.
  meanings(i, j) {
    return this.marked[i][j].split(" ").filter(Boolean).map((mark) => MARKS[mark]);
  }

  highlight(...cells) {
    const [hovered, pinned] = cells.map((cell) => (cell && cell[2] === this.side ? cell : null));
    for (const cell of this.highlighted) {
      cell.classList.remove("pointed", "pinned", "in-line");
      cell.setAttribute("aria-selected", "false");
    }
    const cellAt = ([i, j]) => this.cells[i][j];
    const inLine = hovered ? this.cells.flatMap((row, i) => (i === hovered[0] ? row : [row[hovered[1]]])) : [];
    for (const cell of inLine) cell.classList.add("in-line");
    if (hovered) cellAt(hovered).classList.add("pointed");
    if (pinned) {
      cellAt(pinned).classList.add("pinned");
      cellAt(pinned).setAttribute("aria-selected", "true");
    }
    this.highlighted = [...inLine, ...(pinned ? [cellAt(pinned)] : [])];
  }
}
