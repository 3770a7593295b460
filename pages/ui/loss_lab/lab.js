// The loss lab: one board, or two with their differences. The browser draws every change; Python receives the value when a control is released.

const REFERENCE_TEMPERATURE = 0.1; // the fixed color scale ends at the largest gradient of one direction at this temperature

class Lab {
  constructor(root, component) {
    const { data } = component;
    const all = batchOf(data.batch), batch = data.sizes ? firstPairs(all, data.sizes.start) : all;
    Object.assign(this, data, { all, batch, component, root, pinned: data.pinned ?? null, hovered: null });
    this.shades = Object.fromEntries(Object.entries(data.colors).map(([name, colors]) => [name, shadesOf(colors)]));
    this.boardCells = element("div", { class: "boards" });
    this.card = element("aside", { class: "card", "aria-live": "polite" });
    this.buildBoards();
    this.legend = element("p", { class: "marks" });
    root.picture = () => pictureOf(this.boards); // for the menu of the figure
    root.replaceChildren(...(data.sizes && data.sizes.min < data.sizes.max ? [this.buildSizes()] : []), this.boardCells,
      ...(data.compare ? [this.buildDifferences()] : []),
      this.legend);
    new ResizeObserver(() => this.placeCard()).observe(root); // the width decides which slots are visible
  }

  buildBoards() {
    const { settings, compare } = this.component.data;
    const largest = this.by_logits ? 1 : 1 / (REFERENCE_TEMPERATURE * this.explain(settings).count);
    this.gradientLimit = this.fixedLimit = largest;
    this.isRescaled = false;
    const names = compare ? { settings: "A", compare: "B" } : { settings: "" };
    this.boards = Object.entries(names).map(([key, name]) => new Board(this, name, (settings, isDone) => {
      this.refresh();
      if (isDone) this.component.setStateValue(key, settings);
    }));
    this.boardCells.replaceChildren(...this.boards.map((board) => board.root));
  }

  // All values of the panels; `by_logits`: with the gradient of the loss of each query with respect to its logits.
  explain(settings) {
    const result = explainBatch(this.batch, settings);
    if (!this.by_logits) return result;
    const unit = result.count * settings.temperature;
    return { ...result, gradient: result.gradient.map((row) => row.map((value) => value * unit)) };
  }

  // The slider over the number of pairs of a lesson, which are the first ones of its batch.
  buildSizes() {
    const { start, ...limits } = this.sizes, size = element("output", {}, start);
    const slider = sliderInput({ ...limits, value: start, "aria-label": "Batch size" }, (count, isDone) => {
      size.textContent = count;
      if (count !== this.batch.queries.length) {
        this.batch = firstPairs(this.all, count);
        if (this.pinned && Math.max(...this.pinned) >= count) this.pinned = null;
        this.buildBoards();
        this.update(this.component);
      }
      if (isDone) this.component.setStateValue("pairs", count);
    });
    return element("div", { class: "controls" }, element("div", { class: "with-slider" },
      element("label", {}, "Batch size", size), slider));
  }

  buildDifferences() {
    this.change = new Panel("change", this);
    this.differences = element("div");
    return element("section", { class: "differs" }, this.differences, this.change.root, element("div", { class: "slot" }));
  }

  update(component) {
    this.component = component;
    const { settings, compare } = component.data;
    this.boards.forEach((board, index) => board.show([settings, compare][index]));
    this.refresh();
  }

  refresh() {
    if (this.change) this.showDifferences();
    this.showLegend();
    this.highlight();
    if (!this.card.isConnected) this.placeCard(); // other matrices are shown
  }

  // Whether the lab shows only one direction: a lesson has no controls before the guess, which the other one would answer.
  get isLocked() {
    return !this.controls.length;
  }

  get isDragging() {
    return this.boards.some((board) => board.isDragging);
  }

  // Sets the color scale of all gradients to their largest value, or back to the fixed one.
  rescale() {
    this.isRescaled = !this.isRescaled;
    const parts = this.boards.flatMap(({ result }) => [result, result.queries, result.documents]);
    const largest = Math.max(1e-6, ...parts.flatMap((part) => (part ? part.gradient.flat().map(Math.abs) : [])));
    this.gradientLimit = this.isRescaled ? largest : this.fixedLimit;
    for (const board of this.boards) board.paint();
  }

  // element: the cell in the document that the pointer is on, or that has the focus.
  hover(cell, element = null) {
    this.hovered = cell;
    this.hoveredElement = element ?? this.hoveredElement;
    this.highlight();
    this.placeCard();
  }

  // Moves the card to the reserved area of the matrix of its cell. The height of an area is fixed, so no matrix moves.
  placeCard() {
    const cells = this.hovered ? [this.hoveredElement] : [this.pinnedElement, this.hoveredElement];
    const cell = cells.find((one) => one?.isConnected) ?? this.boardCells.querySelector(".cell");
    const after = (slot) => cell && slot.compareDocumentPosition(cell) & Node.DOCUMENT_POSITION_PRECEDING;
    const slots = [...this.root.querySelectorAll(".slot")].filter((slot) => getComputedStyle(slot).display !== "none");
    const slot = slots.find(after) ?? slots.at(-1);
    if (this.card.parentElement !== slot) slot?.append(this.card);
    if (this.card.scrollHeight > this.card.clientHeight) this.card.tabIndex = 0; // scrolled with the keyboard
    else this.card.removeAttribute("tabindex");
  }

  pin(cell) {
    this.pinned = isSameCell(cell, this.pinned) ? null : cell;
    this.pinnedElement = this.hoveredElement;
    this.highlight();
    this.placeCard();
    this.component.setStateValue("pinned", this.pinned ?? []); // null would be the state before the first click
  }

  highlight() {
    const cell = [this.hovered, this.pinned].find((one) => one && this.boards.some((board) => board.has(one))) ?? null;
    for (const part of [...this.boards, ...(this.change ? [this.change] : [])]) part.highlight(cell, this.pinned);
    this.showCard(cell);
  }

  showCard(cell) {
    const line = (kind, ...content) => element("p", { class: kind }, ...content);
    if (!cell) {
      const hint = "Point at a cell or use the arrow keys to see its texts and formula. Click or press Enter to pin it.";
      this.card.replaceChildren(line("hint", hint));
      return;
    }
    const texts = axesOf(cell[2]).map((kind, axis) =>
      line(kind, element("b", {}, `${cell[axis] + 1}  `), this.batch[`${kind}_texts`][cell[axis]]));
    this.card.replaceChildren(element("div", {}, ...texts), ...this.boards.filter((board) => board.has(cell)).map((board) =>
      element("div", {}, line("facts", [board.name, ...board.facts(cell)].filter(Boolean).join("   ")),
        line("formula", board.formula(cell)))));
  }

  // Lists the marks that occur in this batch.
  showLegend() {
    const present = new Set(this.boards.flatMap((board) => [...board.present]));
    const key = [...present].sort().join(" ");
    if (key === this.legendKey) return;
    this.legendKey = key;
    this.legend.replaceChildren(...Object.entries(MARKS).filter(([mark]) => present.has(mark)).map(([mark, label]) =>
      element("span", {}, element("i", { class: `cell ${mark}` }), label)));
  }

  showDifferences() {
    const [a, b] = this.boards.map((board) => board.result);
    const [from, to] = this.boards.map(({ settings: { symmetric, partition, ...settings } }) =>
      ({ ...settings, directions: `“${directionsText({ ...settings, symmetric, partition })}”` }));
    const names = Object.keys(from).filter((name) => from[name] !== to[name]);
    const settings = names.map((name) => `${LABELS[name]}: ${from[name]} → ${to[name]}`);
    const warning = names.length ? [element("p", { class: "warning", role: "note" },
      `The two losses are not comparable: ${names.map((name) => LABELS[name].toLowerCase()).join(" and ")} `
      + `${names.length > 1 ? "change" : "changes"} the scale of the loss. ${names.join() === "temperature"
        ? "The ranks are the same with both: compare trained encoders on held-out data."
        : "Compare how many queries rank a positive first (below the matrices)."}`)] : [];
    const line = (label, x, y, digits = 3) => `${label} ${number(x, digits)} → ${number(y, digits)} (${signed(y - x, digits)})`;
    const sums = [line("Loss", a.total, b.total)];
    if (!this.boards.some((board) => isJoint(board.settings))) sums.push(line("L0", a.first, b.first));
    if (a.second !== null && b.second !== null) sums.push(line("L1", a.second, b.second));
    sums.push(line("Sum of |∂L/∂s|", a.gradientSum, b.gradientSum, 2));
    sums.push(line("Effective negatives", a.effective, b.effective, 1));
    if (a.hardest >= 0 && b.hardest >= 0) sums.push(`Query with the largest loss ${a.hardest + 1} → ${b.hardest + 1}`);
    const values = a.rows.probability.map((row, i) => row.map((p, j) => b.rows.probability[i][j] - p));
    const rounded = (value) => Math.round(Math.abs(value) * 1e9); // rounding errors must not order equal changes
    const cells = values.flatMap((row, i) => row.map((value, j) => ({ value, i, j })));
    const largest = cells.filter((cell) => cell.value !== 0).sort((x, y) => rounded(y.value) - rounded(x.value)).slice(0, 5);
    const list = (lines) => element("ul", {}, ...lines.map((text) => element("li", {}, text)));
    this.differences.replaceChildren(
      element("h2", {}, "Differences"),
      list(settings.length ? settings : ["Both settings are the same."]), ...warning, list(sums),
      ...(largest.length ? [element("h3", {}, "Cells with the largest change of probability"),
        list(largest.map(({ value, i, j }) => `${cellName([i, j])}: ${signed(value)}`))] : []),
    );
    const [marksOfA, marksOfB] = this.boards.map((board) => (i, j) => board.marks(i, j, "rows").split(" "));
    const marks = this.isDragging ? null : matrix(values.length, values.length, (i, j) => {
      const ofA = marksOfA(i, j); // only what both settings have
      return marksOfB(i, j).filter((mark) => ofA.includes(mark)).join(" ");
    });
    this.change.paint({ values, title: "Change of probability from A to B", unit: "change of p", marks, describe: signed });
  }
}

// Returns the first pairs of a batch.
function firstPairs(batch, count) {
  const first = (values) => values && values.slice(0, count);
  const names = ["queries", "documents", "labels", "query_texts", "document_texts", "query_ids", "document_ids"];
  return { ...batch, ...Object.fromEntries(names.map((name) => [name, first(batch[name])])),
    guide: batch.guide
      && Object.fromEntries(Object.entries(batch.guide).map(([name, rows]) => [name, first(rows).map(first)])) };
}

// Returns the matrices as one SVG element.
function pictureOf(boards) {
  const CELL = 44, GAP = 40, HEAD = 46;
  const text = (x, y, content, attributes = {}) => svg("text", { x, y, ...attributes }, content);
  const small = (anchor, fill = "black") => ({ "text-anchor": anchor, "font-size": 11, fill });
  const shapes = [];
  let width = GAP, height = GAP;
  for (const board of boards) {
    for (const panels of board.groups.map((group) => Object.values(group.panels))) {
      const side = panels[0].size * CELL;
      panels.forEach((panel, index) => {
        const left = GAP + index * (side + 2 * GAP), top = height;
        shapes.push(text(left, top, panel.title.textContent, { "font-weight": "bold" }));
        panel.cells.forEach((row, i) => row.forEach((cell, j) => {
          const [x, y] = [left + j * CELL, top + HEAD / 2 + i * CELL];
          const { backgroundColor, color, borderTopColor, borderTopWidth } = getComputedStyle(cell);
          const center = x + CELL / 2, middle = y + CELL / 2 + 4, side = CELL - 4;
          const border = { stroke: borderTopColor, "stroke-width": parseFloat(borderTopWidth) || 0 };
          shapes.push(
            svg("rect", { x: x + 2, y: y + 2, width: side, height: side, fill: backgroundColor, ...border }),
            text(center, middle, cell.textContent, small("middle", color)),
            ...(j === 0 ? [text(x - 6, middle, i + 1, small("end"))] : []),
            ...(i === 0 ? [text(center, y - 4, j + 1, small("middle"))] : []),
          );
        }));
        width = Math.max(width, left + side + GAP);
      });
      height += HEAD + side;
    }
    shapes.push(text(GAP, height, board.sum.textContent));
    height += GAP;
  }
  return svg("svg", { width, height, "font-family": "sans-serif", "font-size": 13 },
    svg("rect", { width: "100%", height: "100%", fill: "white" }), ...shapes);
}

const labs = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".lab");
  const shape = JSON.stringify([data.batch, data.controls, data.panels, Boolean(data.compare), data.sizes?.min, data.sizes?.max]);
  if (labs.get(root)?.shape !== shape) labs.set(root, { shape, lab: new Lab(root, component) });
  labs.get(root).lab.update(component);
}
