// One setting of the loss on a batch: its controls, its three panels, its sum, and the card of the cell pointed at.

const WORDS = {
  temperature: "Temperature τ", symmetric: "Symmetric", normalization: "Normalization",
  labelled_negatives: "Labelled negatives", duplicates: "Repeated texts", reduction: "Two directions",
  average: "Averaged over", threshold: "Positive above",
};
const HELP = {
  temperature: "Divides every similarity before the softmax. Low: only the hardest negatives count. High: all count alike.",
  symmetric: "Documents also choose among the queries (L1). Off: queries choose among the documents (L0) only.",
  normalization: "l2: rows to length 1 (cosine). _columns: each coordinate over the batch. none: raw dot products.",
  labelled_negatives: "Pairs labelled negative stay among the choices. Off: they are left out of the batch.",
  duplicates: "keep: a repeated text is a negative. merge: it counts once. multi_positive: it is right too.",
  reduction: "mean of L0 and L1 (released code) or their sum (equation 1).",
  average: "batch: every pair counts in the mean (equation 5). positives: only positive pairs.",
  threshold: "A pair is positive when its label is above this.",
};
const OPTIONS = {
  normalization: ["l2", "l2_columns", "range_columns", "minmax_columns", "none"],
  duplicates: ["keep", "merge", "multi_positive"],
  reduction: ["mean", "sum"],
  average: ["batch", "positives"],
};
const MORE = ["reduction", "average", "threshold"];
const [COLDEST, HOTTEST, NOTCHES] = [0.01, 10, 1000];
const toNotch = (tau) => Math.round((NOTCHES * Math.log(tau / COLDEST)) / Math.log(HOTTEST / COLDEST));
const toTau = (notch) => Number((COLDEST * (HOTTEST / COLDEST) ** (notch / NOTCHES)).toPrecision(3));

class Board {
  // lab: what the boards share: {batch, colours, controls, panels, point, pin}. changed(settings, done): told of every
  // move of a control, and with done when it is let go.
  constructor(lab, name, changed) {
    Object.assign(this, { lab, name, changed, held: false, inputs: {}, choosers: "rows" });
    this.controls = element("div", { class: "controls" });
    this.panels = element("div", { class: "panels" });
    this.sum = element("p", { class: "sum", "aria-live": "polite" });
    const heading = name ? [element("h2", {}, `Setting ${name}`)] : [];
    this.root = element("div", { class: "board" }, ...heading, this.controls, this.panels, this.sum);
    this.buildControls();
    this.buildPanels();
  }

  buildControls() {
    const shown = this.lab.controls.filter((name) => !MORE.includes(name));
    const more = this.lab.controls.filter((name) => MORE.includes(name));
    this.controls.append(...shown.map((name) => this.control(name)));
    if (more.length) {
      this.controls.append(element("details", {}, element("summary", {}, "More"), ...more.map((name) => this.control(name))));
    }
  }

  control(name) {
    if (name === "temperature") return this.temperature();
    if (name in OPTIONS) return this.choice(name);
    if (name === "threshold") return this.amount(name, { min: "0", max: "1", step: "0.05" });
    const box = element("input", { type: "checkbox" });
    box.onchange = () => this.set({ [name]: box.checked }, true);
    const label = element("label", { class: "check", title: HELP[name] }, box, WORDS[name]);
    this.inputs[name] = (value) => {
      box.checked = value;
      if (name !== "labelled_negatives") return;
      box.disabled = this.found.positive.every(Boolean);
      label.title = box.disabled ? "No pair of this batch is labelled negative, so this changes nothing." : HELP[name];
    };
    return label;
  }

  choice(name) {
    const list = element("select", {}, ...OPTIONS[name].map((option) => element("option", { value: option }, option)));
    list.onchange = () => this.set({ [name]: list.value }, true);
    this.inputs[name] = (value) => { list.value = value; };
    return element("label", { title: HELP[name] }, WORDS[name], list);
  }

  amount(name, limits) {
    const box = element("input", { type: "number", ...limits });
    box.onchange = () => {
      const value = Number(box.value);
      if (box.value !== "" && value >= Number(limits.min) && value <= Number(limits.max)) this.set({ [name]: value }, true);
      else box.value = this.settings[name];
    };
    this.inputs[name] = (value) => { box.value = value; };
    return element("label", { title: HELP[name] }, WORDS[name], box);
  }

  temperature() {
    const slider = element("input", { type: "range", min: "0", max: String(NOTCHES), "aria-label": WORDS.temperature });
    const typed = this.amount("temperature", { min: String(COLDEST), max: String(HOTTEST), step: "any" });
    const showTyped = this.inputs.temperature;
    slider.oninput = () => { this.held = true; this.set({ temperature: toTau(slider.value) }, false); };
    slider.onchange = () => { this.held = false; this.set({ temperature: toTau(slider.value) }, true); };
    this.inputs.temperature = (value) => {
      if (!this.held) slider.value = toNotch(value);
      slider.setAttribute("aria-valuetext", `${value}`);
      showTyped(value);
    };
    return element("div", { class: "temperature", title: HELP.temperature }, typed, slider);
  }

  buildPanels() {
    const size = this.lab.batch.queries.length;
    const texts = { queries: this.lab.batch.query_texts, documents: this.lab.batch.document_texts };
    const kinds = { similarity: "similarity", softmax: "probability", gradient: "gradient" };
    this.shown = {};
    this.lab.panels.forEach((name, place) => {
      this.shown[name] = new Panel(kinds[name], size, place ? null : texts, this.lab, this.lab.colours);
      this.panels.append(this.shown[name].root);
    });
    if (this.shown.softmax) this.shown.softmax.root.insertBefore(this.toggle(), this.shown.softmax.grid);
  }

  toggle() {
    const button = element("button", { type: "button", class: "toggle" });
    button.onclick = () => { this.choosers = this.choosers === "rows" ? "columns" : "rows"; this.paint(); this.lab.light(); };
    this.turn = button;
    return button;
  }

  set(changes, done) {
    this.settings = { ...this.settings, ...changes };
    this.paint();
    this.changed(this.settings, done);
  }

  // Show these settings, unless a control is being moved.
  show(settings) {
    if (!this.held) this.settings = { ...settings };
    this.paint();
  }

  paint() {
    const found = (this.found = explainBatch(this.lab.batch, this.settings));
    for (const [name, input] of Object.entries(this.inputs)) input(this.settings[name]);
    if (!found.columns) this.choosers = "rows";
    this.paintSimilarity(found);
    this.paintSoftmax(found);
    this.paintGradient(found);
    this.paintSum(found);
  }

  // Marks tell by their border what a cell is: the own pair, another positive, a repeated text, or no candidate.
  marks(i, j, side) {
    const { batch } = this.lab;
    const [a, b] = side === "columns" ? [j, i] : [i, j];
    const found = side === "columns" ? this.found.columns : this.found.rows;
    const own = i === j ? (this.found.positive[i] ? "own" : "negative") : found.positives[a][b] ? "positive" : "";
    const right = this.found.positive;
    const [sameQuery, sameDocument] = [batch.query_ids[i] === batch.query_ids[j], batch.document_ids[i] === batch.document_ids[j]];
    const copy = i !== j && ((sameDocument && right[i]) || (sameQuery && right[j]));  // the document answers the query
    return [own, copy && !found.positives[a][b] ? "copy" : "", found.candidates[a][b] ? "" : "out"].join(" ");
  }

  place(i, j) {
    return `query ${i + 1}, document ${j + 1}`;
  }

  paintSimilarity({ similarity }) {
    const cosine = this.settings.normalization === "l2";
    this.shown.similarity?.paint({
      values: similarity, title: cosine ? "How similar each query is to each document" : "How large each dot product is",
      marks: (i, j) => this.marks(i, j, "rows"), unit: cosine ? "cosine" : "dot product",
      says: (i, j) => `${this.place(i, j)}: similarity ${number(similarity[i][j])}`,
    });
  }

  paintSoftmax({ rows, columns }) {
    if (!this.shown.softmax) return;
    const side = this.choosers;
    const values = side === "rows" ? rows.probability : turned(columns.probability);
    this.turn.textContent = side === "rows" ? "Show documents choosing" : "Show queries choosing";
    this.turn.hidden = !columns;
    this.shown.softmax.paint({
      values, unit: "probability", marks: (i, j) => this.marks(i, j, side),
      title: side === "rows" ? "Which document each query would choose" : "Which query each document would choose",
      says: (i, j) => `${this.place(i, j)}: probability ${number(values[i][j])}`,
    });
  }

  paintGradient({ gradient }) {
    this.shown.gradient?.paint({
      values: gradient, title: "How the loss pulls (green) and pushes (orange)", unit: "∂L/∂s",
      marks: (i, j) => this.marks(i, j, "rows"),
      says: (i, j) => `${this.place(i, j)}: gradient ${number(gradient[i][j])}`,
    });
  }

  paintSum(found) {
    const { first, second, weight, effective, hardest } = found;
    const parts = second === null ? `L0 ${number(first)}` : `L0 ${number(first)} + L1 ${number(second)}`;
    const loss = weight === 1 ? `Loss = ${parts}` : `Loss = ½ (${parts})`;
    const whole = second === null ? loss : `${loss} = ${number(found.total)}`;
    const rest = hardest < 0
      ? "not defined for the rest: no pair is positive"
      : `effective negatives per row ${number(effective, 1)} · hardest row: ${hardest + 1}`;
    this.sum.textContent = `${whole} · ${rest}`;
    this.sum.title = "L0: queries choose documents. L1: documents choose queries. Effective negatives: how many equal "
      + "negatives would push as much as those of a row do.";
    Object.assign(this.sum.dataset, {
      total: String(found.total), first: String(first), second: String(second), effective: String(effective), hardest: String(hardest),
    });
  }

  // The formula of a cell with its numbers in it.
  formula([i, j]) {
    const { rows, columns, gradient, count, weight } = this.found;
    const term = (side, a, b) => {
      const right = side.positives[a].filter(Boolean).length;
      if (!right) return null;
      const wanted = side.positives[a][b] ? number(1 / right, right === 1 ? 0 : 3) : "0";
      return `(${number(side.probability[a][b])} − ${wanted})`;
    };
    const terms = [term(rows, i, j), columns ? term(columns, j, i) : null].filter(Boolean);
    if (!terms.length) return "∂L/∂s = 0: this pair is labelled negative and asks nothing";
    const inner = terms.length > 1 ? `[${terms.join(" + ")}]` : terms[0];
    const half = weight === 1 ? "" : "½ · ";
    return `∂L/∂s = ${half}${inner} / (${count} · ${this.settings.temperature}) = ${number(gradient[i][j])}`;
  }

  facts([i, j]) {
    const { similarity, logits, rows, columns } = this.found;
    const facts = [`s = ${number(similarity[i][j])}`, `s/τ = ${number(logits[i][j], 1)}`];
    const out = (side, a, b) => (side.candidates[a][b] ? number(side.probability[a][b]) : "not a choice");
    facts.push(`p (query chooses) = ${out(rows, i, j)}`);
    if (columns) facts.push(`p (document chooses) = ${out(columns, j, i)}`);
    return facts;
  }

  light(cell, pinned) {
    for (const panel of Object.values(this.shown)) panel.light(cell, pinned);
  }
}
