// Drawing: colours, numbers, and one matrix as a grid of cells that is built once and then only repainted.

const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};

const number = (value, digits = 3) => (Object.is(value, -0) || Math.abs(value) < 0.5 * 10 ** -digits
  ? (0).toFixed(digits) : value.toFixed(digits)).replace("-", "\u2212");
const signed = (value, digits = 3) => (value > 0 ? "+" : "") + number(value, digits);

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
function colourAt(scale, place) {
  const at = Math.min(1, Math.max(0, place)) * (scale.length - 1);
  const low = Math.min(scale.length - 2, Math.floor(at));
  const [from, to] = [channels(scale[low]), channels(scale[low + 1])];
  return from.map((value, c) => Math.round(value + (to[c] - value) * (at - low)));
}
const isDark = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue < 140;

// What the three kinds of matrix show: the span of their colours and the words for a cell.
const KINDS = {
  similarity: { scale: "cosine", span: (values) => symmetric(values, 1) },
  probability: { scale: "probability", span: () => [0, 1] },
  gradient: { scale: "gradient", span: (values) => symmetric(values, 1e-6) },
};
function symmetric(values, least) {
  const largest = Math.max(least, ...values.flat().map(Math.abs));
  return [-largest, largest];
}

class Panel {
  // kind: a key of KINDS. texts: {queries, documents} on the axes, or null for numbers alone. watch: {point, pin}.
  constructor(kind, size, texts, watch, colours) {
    Object.assign(this, { kind, size, watch, colours, cells: [] });
    this.title = element("h3");
    this.grid = element("div", { class: "matrix", role: "grid" });
    this.grid.style.setProperty("--size", size);
    this.grid.classList.toggle("with-texts", Boolean(texts));
    this.legend = element("div", { class: "legend" });
    this.root = element("section", { class: `panel ${kind}` }, this.title, this.grid, this.legend);
    this.build(texts);
  }

  build(texts) {
    const head = (text, label, kind) => {
      const shown = element("span", { class: "words" }, text ? `${label}  ${text}` : `${label}`);
      return element("div", { class: `head ${kind}`, role: kind === "row" ? "rowheader" : "columnheader", title: text ?? "" }, shown);
    };
    const top = element("div", { class: "line", role: "row" }, element("div", { class: "corner" }));
    for (let j = 0; j < this.size; j++) top.append(head(texts?.documents[j], j + 1, "column"));
    this.grid.append(top);
    for (let i = 0; i < this.size; i++) {
      const line = element("div", { class: "line", role: "row" }, head(texts?.queries[i], i + 1, "row"));
      this.cells.push([]);
      for (let j = 0; j < this.size; j++) line.append(this.cell(i, j));
      this.grid.append(line);
    }
  }

  cell(i, j) {
    const made = element("div", { class: "cell", role: "gridcell", tabindex: i + j === 0 ? "0" : "-1", "data-cell": `${i},${j}` });
    made.onpointerenter = () => this.watch.point([i, j]);
    made.onpointerleave = () => this.watch.point(null);
    made.onfocus = () => { this.rove(made); this.watch.point([i, j]); };
    made.onblur = () => this.watch.point(null);
    made.onclick = () => this.watch.pin([i, j]);
    made.onkeydown = (event) => this.key(event, i, j);
    this.cells[i].push(made);
    return made;
  }

  key(event, i, j) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key in moves) {
      const [down, right] = moves[event.key];
      this.cells[i + down]?.[j + right]?.focus();
    } else if (event.key === "Enter" || event.key === " ") this.watch.pin([i, j]);
    else if (event.key === "Escape") this.watch.pin(null);
    else return;
    event.preventDefault();
  }

  rove(chosen) {
    for (const cell of this.cells.flat()) cell.tabIndex = cell === chosen ? 0 : -1;
  }

  // values: matrix to show; title: a sentence; marks(i, j): a class for the cell; says(i, j): what a reader is told.
  paint({ values, title, marks, says, unit }) {
    const { scale, span } = KINDS[this.kind];
    const [low, high] = span(values);
    this.title.textContent = title;
    this.grid.setAttribute("aria-label", title);
    values.forEach((row, i) => row.forEach((value, j) => {
      const cell = this.cells[i][j];
      const colour = colourAt(this.colours[scale], (value - low) / (high - low));
      cell.style.backgroundColor = `rgb(${colour})`;
      cell.style.color = isDark(colour) ? "#fff" : "#26323d";
      cell.textContent = this.size <= 8 ? number(value, this.kind === "gradient" && high < 0.1 ? 3 : 2) : "";
      cell.className = `cell ${marks(i, j)}`;
      cell.dataset.value = String(value);
      cell.setAttribute("aria-label", says(i, j));
    }));
    this.paintLegend(scale, low, high, unit);
  }

  paintLegend(scale, low, high, unit) {
    const stops = this.colours[scale].map((colour, at, all) => `${colour} ${(100 * at) / (all.length - 1)}%`);
    const bar = element("span", { class: "bar" });
    bar.style.background = `linear-gradient(to right, ${stops})`;
    const digits = high < 0.1 ? 3 : high < 10 ? 2 : 0;
    this.legend.replaceChildren(number(low, digits), bar, number(high, digits), element("span", { class: "unit" }, unit));
  }

  light(cell, pinned) {
    const same = (a, b) => a && b && a[0] === b[0] && a[1] === b[1];
    this.cells.forEach((row, i) => row.forEach((shown, j) => {
      shown.classList.toggle("pointed", Boolean(same(cell, [i, j])));
      shown.classList.toggle("pinned", Boolean(same(pinned, [i, j])));
      shown.classList.toggle("in-line", Boolean(cell) && (cell[0] === i || cell[1] === j));
      shown.setAttribute("aria-selected", String(Boolean(same(pinned, [i, j]))));
    }));
  }
}
