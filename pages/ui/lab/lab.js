// The loss lab: one board, or two side by side with what differs between them. Python gives the batch and the settings;
// every move redraws here, and what was let go is sent back.

class Lab {
  constructor(root, component) {
    const { data } = component;
    Object.assign(this, data, { root, component, pinned: data.pinned ?? null, pointed: null });
    this.first = new Board(this, data.compare ? "A" : "", (settings, done) => this.changed("settings", settings, done));
    this.second = data.compare ? new Board(this, "B", (settings, done) => this.changed("compare", settings, done)) : null;
    this.card = element("aside", { class: "card", "aria-live": "polite" });
    this.differs = element("section", { class: "differs" });
    const boards = element("div", { class: "boards" }, this.first.root, ...(this.second ? [this.second.root] : []));
    this.marks = element("p", { class: "marks" });
    const picture = element("button", { type: "button", class: "toggle" }, "Picture (SVG)");
    picture.onclick = () => savePicture(this.boards());
    const below = element("div", { class: "below" }, this.card, this.marks, picture);
    root.replaceChildren(boards, ...(this.second ? [this.differs] : []), below);
    if (this.second) {
      this.change = new Panel("gradient", this.batch.queries.length, null, this, this.colours);
      this.list = element("div");
      this.differs.append(this.list, this.change.root);
    }
  }

  update(component) {
    this.component = component;
    this.first.show(component.data.settings);
    if (this.second) this.second.show(component.data.compare);
    this.compareBoards();
    this.showMarks();
    this.light();
  }

  changed(name, settings, done) {
    this.compareBoards();
    this.showMarks();
    this.light();
    if (done) this.component.setStateValue(name, settings);
  }

  point(cell) {
    this.pointed = cell;
    this.light();
  }

  pin(cell) {
    const again = cell && this.pinned && cell[0] === this.pinned[0] && cell[1] === this.pinned[1];
    this.pinned = again ? null : cell;
    this.light();
    this.component.setStateValue("pinned", this.pinned);
  }

  light() {
    const cell = this.pointed ?? this.pinned;
    for (const board of this.boards()) board.light(cell, this.pinned);
    this.change?.light(cell, this.pinned);
    this.showCard(cell);
  }

  showCard(cell) {
    if (!cell) {
      this.card.replaceChildren(element("p", { class: "hint" }, "Point at a cell, or move to it with the arrow keys, to see its texts and its formula. A click or Enter pins it."));
      return;
    }
    const [i, j] = cell;
    const lines = this.boards().flatMap((board) => [
      element("p", { class: "facts" }, [board.name, ...board.facts(cell)].filter(Boolean).join("   ")),
      element("p", { class: "formula" }, board.formula(cell)),
    ]);
    const text = (kind, words, at) => element("p", { class: kind }, element("b", {}, `${at + 1}  `), words);
    this.card.replaceChildren(
      text("query", this.batch.query_texts[i], i), text("document", this.batch.document_texts[j], j), ...lines,
    );
  }

  boards() {
    return [this.first, this.second].filter(Boolean);
  }

  // The marks that this batch shows, and no others.
  showMarks() {
    const places = this.batch.queries.map((_, at) => at);
    const seen = new Set(this.boards().flatMap((board) => places.flatMap((i) => places.flatMap((j) => board.marks(i, j, board.choosers).split(" ")))));
    const marks = [
      ["own", "own pair"], ["negative", "labelled negative"], ["positive", "another positive"],
      ["copy", "repeated text: suspected false negative"], ["out", "not a choice"],
    ];
    this.marks.replaceChildren(...marks.filter(([mark]) => seen.has(mark)).map(([mark, words]) =>
      element("span", {}, element("i", { class: `cell ${mark}` }), words)));
  }

  compareBoards() {
    if (!this.second) return;
    const [a, b] = [this.first.found, this.second.found];
    const [from, to] = [this.first.settings, this.second.settings];
    const names = Object.keys(from).filter((name) => from[name] !== to[name]);
    const settings = names.map((name) => `${WORDS[name]}: ${from[name]} → ${to[name]}`);
    const line = (words, x, y, digits = 3) => `${words} ${number(x, digits)} → ${number(y, digits)} (${signed(y - x, digits)})`;
    const sums = [line("Loss", a.total, b.total), line("L0", a.first, b.first)];
    if (a.second !== null && b.second !== null) sums.push(line("L1", a.second, b.second));
    sums.push(line("Effective negatives", a.effective, b.effective, 1));
    if (a.hardest >= 0 && b.hardest >= 0) sums.push(`Hardest row ${a.hardest + 1} → ${b.hardest + 1}`);
    const values = a.rows.probability.map((row, i) => row.map((p, j) => b.rows.probability[i][j] - p));
    const cells = values.flatMap((row, i) => row.map((value, j) => ({ value, i, j })));
    const most = cells.filter((cell) => cell.value !== 0).sort((x, y) => Math.abs(y.value) - Math.abs(x.value)).slice(0, 5);
    const items = (words) => element("ul", {}, ...words.map((word) => element("li", {}, word)));
    this.list.replaceChildren(
      element("h2", {}, "What differs"),
      items(settings.length ? settings : ["Both settings are the same."]), items(sums),
      ...(most.length ? [element("h3", {}, "Cells whose probability changed most"),
        items(most.map(({ value, i, j }) => `query ${i + 1}, document ${j + 1}: ${signed(value)}`))] : []),
    );
    this.change.paint({
      values, title: "How much more probable each choice is in B than in A", unit: "change of p",
      marks: (i, j) => (i === j ? "own" : ""), says: (i, j) => `query ${i + 1}, document ${j + 1}: ${signed(values[i][j])}`,
    });
  }
}

// The matrices as drawn, side by side, in a file.
function savePicture(boards) {
  const CELL = 44, GAP = 40, HEAD = 46;
  const safe = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const shapes = [];
  let width = GAP, height = GAP;
  boards.forEach((board) => {
    const panels = Object.values(board.shown), side = panels[0].size * CELL;
    panels.forEach((panel, at) => {
      const left = GAP + at * (side + 2 * GAP), top = height;
      shapes.push(`<text x="${left}" y="${top}" font-weight="bold">${safe(panel.title.textContent)}</text>`);
      panel.cells.forEach((row, i) => row.forEach((cell, j) => {
        const [x, y] = [left + j * CELL, top + HEAD / 2 + i * CELL];
        const { backgroundColor, color, borderTopColor, borderTopWidth } = getComputedStyle(cell);
        const edge = cell.className === "cell" ? "none" : borderTopColor;
        shapes.push(`<rect x="${x + 2}" y="${y + 2}" width="${CELL - 4}" height="${CELL - 4}" fill="${backgroundColor}" stroke="${edge}" stroke-width="${parseFloat(borderTopWidth) || 0}"/>`);
        shapes.push(`<text x="${x + CELL / 2}" y="${y + CELL / 2 + 4}" text-anchor="middle" fill="${color}" font-size="11">${safe(cell.textContent)}</text>`);
        if (j === 0) shapes.push(`<text x="${x - 6}" y="${y + CELL / 2 + 4}" text-anchor="end" font-size="11">${i + 1}</text>`);
        if (i === 0) shapes.push(`<text x="${x + CELL / 2}" y="${y - 4}" text-anchor="middle" font-size="11">${j + 1}</text>`);
      }));
      width = Math.max(width, left + side + GAP);
    });
    height += HEAD + side;
    shapes.push(`<text x="${GAP}" y="${height}">${safe(board.sum.textContent)}</text>`);
    height += GAP;
  });
  const drawn = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="white"/>${shapes.join("")}</svg>`;
  const address = URL.createObjectURL(new Blob([drawn], { type: "image/svg+xml" }));
  element("a", { href: address, download: "loss-lab.svg" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const labs = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".lab");
  const shape = JSON.stringify([data.batch, data.controls, data.panels, Boolean(data.compare)]);
  let known = labs.get(root);
  if (!known || known.shape !== shape) {
    known = { shape, lab: new Lab(root, component) };
    labs.set(root, known);
  }
  known.lab.update(component);
}
