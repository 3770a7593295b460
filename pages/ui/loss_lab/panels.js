// A matrix as a grid of cells that is built once and then repainted.

const signed = (value, digits = 3) => (value > 0 ? "+" : "") + number(value, digits);
const cellName = (i, j) => `query ${i + 1}, document ${j + 1}`;
const isSameCell = (a, b) => Boolean(a && b && a[0] === b[0] && a[1] === b[1]);
const isDark = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue < 140;

function symmetricRange(values, least) {
  const largest = Math.max(least, ...values.flat().map(Math.abs));
  return [-largest, largest];
}
// The color scale and the range of values of each kind of matrix.
const KINDS = {
  similarity: { scale: "cosine", range: (values) => symmetricRange(values, 1) },
  probability: { scale: "probability", range: () => [0, 1] },
  gradient: { scale: "gradient", range: (values) => symmetricRange(values, 1e-6) },
};

class Panel {
  // kind: a key of KINDS. texts: {queries, documents} on the axes, or null for numbers only.
  constructor(kind, lab, texts = null) {
    Object.assign(this, { kind, lab, size: lab.batch.queries.length });
    this.title = element("h3");
    this.legend = element("div", { class: "legend" });
    this.cells = matrix(this.size, this.size, (i, j) => this.buildCell(i, j));
    this.grid = element("div", { class: texts ? "matrix with-texts" : "matrix", role: "grid" }, ...this.buildRows(texts));
    this.grid.style.setProperty("--size", this.size);
    this.root = element("section", { class: `panel ${kind}` }, this.title, this.grid, this.legend);
  }

  buildRows(texts) {
    const header = (text, index, kind) => element(
      "div", { class: `head ${kind}`, role: `${kind}header`, title: text ?? "" },
      element("span", { class: "words" }, text ? `${index + 1}  ${text}` : `${index + 1}`));
    const row = (...cells) => element("div", { class: "line", role: "row" }, ...cells);
    const columns = this.cells.map((_, j) => header(texts?.documents[j], j, "column"));
    return [
      row(element("div", { class: "corner" }), ...columns),
      ...this.cells.map((cells, i) => row(header(texts?.queries[i], i, "row"), ...cells)),
    ];
  }

  buildCell(i, j) {
    return element("div", {
      class: "cell", role: "gridcell", tabindex: i + j === 0 ? 0 : -1, "data-cell": `${i},${j}`,
      onpointerenter: () => this.lab.hover([i, j]),
      onpointerleave: () => this.lab.hover(null),
      onfocus: () => {
        this.cells.forEach((row, a) => row.forEach((cell, b) => { cell.tabIndex = a === i && b === j ? 0 : -1; }));
        this.lab.hover([i, j]);
      },
      onblur: () => this.lab.hover(null),
      onclick: () => this.lab.pin([i, j]),
      onkeydown: (event) => this.onKey(event, i, j),
    });
  }

  onKey(event, i, j) {
    const step = ARROWS[event.key];
    if (step) this.cells[i + step[0]]?.[j + step[1]]?.focus();
    else if (event.key === "Enter" || event.key === " ") this.lab.pin([i, j]);
    else if (event.key === "Escape") this.lab.pin(null);
    else return;
    event.preventDefault();
  }

  // marks(i, j): CSS classes of a cell; describe(value): text for screen readers.
  paint({ values, title, marks, describe, unit }) {
    const { scale, range } = KINDS[this.kind];
    const [low, high] = range(values);
    this.title.textContent = title;
    this.grid.setAttribute("aria-label", title);
    values.forEach((row, i) => row.forEach((value, j) => {
      const cell = this.cells[i][j];
      const color = colorAt(this.lab.colors[scale], (value - low) / (high - low));
      cell.style.backgroundColor = `rgb(${color})`;
      cell.style.color = isDark(color) ? "#fff" : "#26323d";
      cell.textContent = this.size <= 8 ? number(value, this.kind === "gradient" && high < 0.1 ? 3 : 2) : "";
      cell.className = `cell ${marks(i, j)}`;
      cell.dataset.value = String(value);
      cell.setAttribute("aria-label", `${cellName(i, j)}: ${describe(value)}`);
    }));
    const bar = element("span", { class: "bar" });
    bar.style.background = `linear-gradient(to right, ${this.lab.colors[scale]})`;
    const digits = high < 0.1 ? 3 : high < 10 ? 2 : 0;
    this.legend.replaceChildren(number(low, digits), bar, number(high, digits), element("span", { class: "unit" }, unit));
  }

  highlight(hovered, pinned) {
    this.cells.forEach((row, i) => row.forEach((cell, j) => {
      cell.classList.toggle("pointed", isSameCell(hovered, [i, j]));
      cell.classList.toggle("pinned", isSameCell(pinned, [i, j]));
      cell.classList.toggle("in-line", Boolean(hovered) && (hovered[0] === i || hovered[1] === j));
      cell.setAttribute("aria-selected", String(isSameCell(pinned, [i, j])));
    }));
  }
}
