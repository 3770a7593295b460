// One setting of the loss on a batch: controls, three panels and the sum.

const LABELS = {
  temperature: "Temperature τ", symmetric: "Symmetric", normalization: "Normalization",
  labeled_negatives: "Labeled negatives", duplicates: "Repeated texts", reduction: "Two directions",
  average: "Averaged over", threshold: "Positive if label exceeds", mask: "False-negative mask", mask_margin: "Mask margin",
  mask_margin_kind: "Kind of mask margin",
  hardness: "Hardness weights", hardness_strength: "Weight strength", decoupled: "Decoupled", debiased_prior: "Debiased prior",
};
const OPTIONS = { // the values of a setting, and what they do
  normalization: {
    l2: "each vector has length 1", l2_columns: "each coordinate has length 1 over the batch",
    range_columns: "each coordinate is divided by its range", minmax_columns: "each coordinate is moved to 0 to 1", none: "",
  },
  duplicates: { keep: "copies are negatives", merge: "one copy is left", multi_positive: "copies are positives" },
  reduction: { mean: "", sum: "" },
  average: { batch: "all pairs", positives: "positive pairs" },
  mask: { none: "", self: "by the encoder itself", guide: "by another encoder" },
  mask_margin_kind: { absolute: "", relative: "a share of the similarity of the positive" },
  hardness: { none: "", in_batch_negatives: "" },
};
const NUMBERS = {
  threshold: { min: 0, max: 1, step: 0.05 }, mask_margin: { min: -2, max: 2, step: 0.05 },
  hardness_strength: { min: 0, max: 100, step: 1 }, debiased_prior: { min: 0, max: 0.99, step: 0.05 },
};
const MORE = ["labeled_negatives", "hardness", "reduction", "average", "threshold", "mask_margin", "mask_margin_kind",
  "hardness_strength", "decoupled", "debiased_prior"];
const NEEDED = { mask_margin: "mask", mask_margin_kind: "mask", hardness_strength: "hardness" }; // what a setting refers to
const [MIN_TAU, MAX_TAU, SLIDER_STEPS] = [0.01, 10, 300]; // 100 steps from 0.1 to 1
const toSlider = (tau) => Math.round((SLIDER_STEPS * Math.log(tau / MIN_TAU)) / Math.log(MAX_TAU / MIN_TAU));
const fromSlider = (value) => Number((MIN_TAU * (MAX_TAU / MIN_TAU) ** (value / SLIDER_STEPS)).toPrecision(3));

class Board {
  // onChange(settings, isDone) is called on every change of a control; isDone: the control was released.
  constructor(lab, name, onChange) {
    Object.assign(this, { lab, name, onChange, isDragging: false, updaters: {}, anchors: "rows", present: new Set() });
    const texts = { queries: lab.batch.query_texts, documents: lab.batch.document_texts };
    const kinds = { similarity: "similarity", softmax: "probability", gradient: "gradient" };
    this.panels = Object.fromEntries(lab.panels.map((panel, index) =>
      [panel, new Panel(kinds[panel], lab, index ? null : texts)]));
    this.anchorButton = element("button", { type: "button", class: "toggle", onclick: () => {
      this.anchors = this.anchors === "rows" ? "columns" : "rows";
      this.paint();
      this.lab.refresh(); // the legend lists the marks of the selected anchors
    } });
    this.panels.softmax?.legend.append(this.anchorButton);
    this.sum = element("p", { class: "sum", "aria-live": "polite", title: "L0: each query ranks the documents. "
      + "L1: each document ranks the queries. Effective negatives: number of negatives that matter in a row, on average." });
    this.root = element("div", { class: "board" }, ...(name ? [element("h2", {}, `Setting ${name}`)] : []), this.buildControls(),
      this.sum, this.buildPanels());
  }

  buildControls() {
    const { controls } = this.lab, hasMore = controls.length > MORE.length; // a lesson shows all of its few controls
    const [shown, more] = [false, true].map((isMore) =>
      controls.filter((name) => (hasMore && MORE.includes(name)) === isMore).map((name) => this.control(name)));
    const { settings, compare, defaults } = this.lab;
    const isChanged = MORE.some((field) => [settings, compare].some((values) => values && values[field] !== defaults[field]));
    const details = more.length ? [element("details", isChanged ? { open: "" } : {}, element("summary", {}, "More"), element("div", { class: "fields" }, ...more))] : [];
    return element("div", { class: "controls" }, ...shown, ...details);
  }

  buildPanels() {
    const panels = Object.values(this.panels), name = panels.length === 2 ? "panels two" : "panels";
    const root = element("div", { class: name }, ...panels.map((panel) => panel.root));
    root.style.setProperty("--size", this.lab.batch.queries.length);
    root.style.setProperty("--panels", panels.length);
    return root;
  }

  control(name) {
    if (name === "temperature") return this.sliderControl(name, { min: MIN_TAU, max: MAX_TAU, step: "any" },
      { min: 0, max: SLIDER_STEPS, step: 1 }, toSlider, fromSlider);
    if (name in this.lab.sliders) return this.sliderControl(name, this.lab.sliders[name], this.lab.sliders[name]);
    if (name in NUMBERS) return this.numberControl(name, NUMBERS[name]);
    if (name in OPTIONS) {
      const select = element("select", { onchange: () => this.set({ [name]: select.value }, true) },
        ...Object.entries(OPTIONS[name]).filter(([option]) => option !== "guide" || this.lab.batch.guide).map(([option, about]) =>
          element("option", { value: option }, about ? `${option}: ${about}` : option)));
      this.updaters[name] = (value) => this.update(select, name, value);
      return element("label", { title: this.lab.help[name] }, LABELS[name], select);
    }
    const box = element("input", { type: "checkbox", onchange: () => this.set({ [name]: box.checked }, true) });
    const label = element("label", { class: "check", title: this.lab.help[name] }, box, LABELS[name]);
    this.updaters[name] = (value) => {
      box.checked = value;
      if (name !== "labeled_negatives") return;
      box.disabled = this.result.positive.every(Boolean);
      label.title = box.disabled ? "No pair of this batch is labeled negative, so this changes nothing." : this.lab.help[name];
    };
    return label;
  }

  update(input, name, value) {
    input.value = value;
    input.disabled = this.settings[NEEDED[name]] === "none";
  }

  numberControl(name, limits) {
    const range = element("small", { role: "status" });
    const box = element("input", { type: "number", ...limits, onchange: () => {
      const value = Number(box.value), isValid = box.value !== "" && value >= limits.min && value <= limits.max;
      range.textContent = isValid ? "" : `Enter a number from ${limits.min} to ${limits.max}.`;
      if (isValid) this.set({ [name]: value }, true);
      else box.value = this.settings[name];
    } });
    this.updaters[name] = (value) => this.update(box, name, value);
    return element("label", { title: this.lab.help[name] }, LABELS[name], box, range);
  }

  // A number with a slider. limits: of the number; scale: limits of the slider, whose positions `position` and `valueAt` convert.
  sliderControl(name, limits, scale, position = Number, valueAt = Number) {
    const box = this.numberControl(name, limits), updateBox = this.updaters[name];
    const slider = sliderInput({ ...scale, "aria-label": LABELS[name] }, (at, isDone) => {
      this.isDragging = !isDone;
      this.set({ [name]: valueAt(at) }, isDone);
    });
    this.updaters[name] = (value) => {
      if (!this.isDragging) slider.value = position(value);
      slider.setAttribute("aria-valuetext", value);
      updateBox(value);
    };
    return element("div", { class: "with-slider", title: this.lab.help[name] }, box, slider);
  }

  set(changes, isDone) {
    this.settings = { ...this.settings, ...changes };
    this.paint();
    this.onChange(this.settings, isDone);
  }

  // Shows these settings, unless the user is moving a control.
  show(settings) {
    if (!this.isDragging) this.settings = { ...settings };
    this.paint();
  }

  paint() {
    const { similarity, rows, columns, gradient } = (this.result = explainBatch(this.lab.batch, this.settings));
    for (const [name, update] of Object.entries(this.updaters)) update(this.settings[name]);
    if (!columns) this.anchors = "rows";
    const marks = this.changedMarks();
    const isCosine = this.settings.normalization === "l2", isRows = this.anchors === "rows";
    this.anchorButton.textContent = `Show the probabilities for each ${isRows ? "document" : "query"}`;
    this.anchorButton.hidden = !columns || this.lab.isLocked;
    const { decoupled, debiased_prior: prior } = this.settings; // probabilities are derivatives of the log denominator
    const remark = prior > 0 && !this.isLesson ? "; positives may be below 0" : decoupled ? ", without the positive" : "";
    const paint = (panel, options) => panel?.paint({ marks: marks?.rows, ...options });
    paint(this.panels.similarity, {
      values: similarity, unit: isCosine ? "cosine" : "dot product", describe: (value) => `similarity ${number(value)}`,
      title: isCosine ? "Cosine of each query and document" : "Dot product of each query and document",
    });
    paint(this.panels.softmax, {
      values: isRows ? rows.probability : transpose(columns.probability),
      unit: decoupled && prior > 0 ? "derivatives of the log denominator, which can exceed 1"
        : `each ${isRows ? "row" : "column"} sums to 1${remark}`,
      title: isRows ? "Probability of each document for a query" : "Probability of each query for a document",
      marks: marks?.[this.anchors], describe: (value) => `probability ${number(value)}`,
    });
    paint(this.panels.gradient, {
      values: gradient, unit: columns ? "∂L/∂s of both directions" : "∂L/∂s; each row sums to 0", title: `Gradient${columns ? " of both directions" : ""}: pull (green), push (orange)`,
      describe: (value) => `gradient ${number(value)}`,
    });
    this.showSum();
  }

  // The marks of all cells by direction, or null if they are those of the last call: the temperature does not change them.
  changedMarks() {
    const key = JSON.stringify({ ...this.settings, temperature: 0, anchors: this.anchors });
    if (key === this.marksKey) return null;
    this.marksKey = key;
    const { length } = this.result.similarity, of = (anchors) => matrix(length, length, (i, j) => this.marks(i, j, anchors));
    const marks = { rows: of("rows"), columns: this.result.columns && of("columns") };
    this.present = new Set(marks[this.anchors].flat().flatMap((names) => names.split(" ")));
    return marks;
  }

  // The border of a cell marks the pair on the diagonal, another positive, a false negative, or an excluded cell. An
  // anchor of a pair that is labeled negative has no term in the loss, so no text is its false negative.
  marks(i, j, anchors) {
    const { batch } = this.lab, { positive } = this.result;
    const [anchor, candidate] = anchors === "columns" ? [j, i] : [i, j];
    const { positives, candidates } = this.result[anchors], isPositive = positives[anchor][candidate];
    const mark = i === j ? (positive[i] ? "pair" : "negative") : isPositive ? "positive" : "";
    const isSameQuery = batch.query_ids[i] === batch.query_ids[j], isSameDocument = batch.document_ids[i] === batch.document_ids[j];
    const answers = i !== j && ((isSameDocument && positive[i]) || (isSameQuery && positive[j])); // the document answers the query
    const isFalseNegative = answers && positive[anchor] && !isPositive;
    const out = candidates[anchor][candidate] ? "" : this.result[anchors].masked[anchor][candidate] ? "masked" : "out";
    return [mark, isFalseNegative ? "copy" : "", out].join(" ");
  }

  // Lessons show fewer matrices, and of the numbers the loss alone.
  get isLesson() {
    return Object.keys(this.panels).length < 3;
  }

  showSum() {
    const { first, second, weight, effective, hardest, total, gradientSum } = this.result;
    const parts = `L0 (query → document) ${number(first)}${second === null ? "" : ` + L1 (document → query) ${number(second)}`}`;
    const loss = second === null ? `Loss ${parts}` : `Loss ${number(total)} = ${weight === 1 ? parts : `½ · [${parts}]`}`;
    const rest = hardest < 0
      ? "effective negatives and hardest row: not defined, no pair is positive"
      : `effective negatives ${number(effective, 1)} · hardest row ${hardest + 1}`;
    if (this.isLesson) this.sum.textContent = second === null ? `Loss of this batch (query → document): ${number(first)}` : loss;
    else this.sum.textContent = `${loss} · sum of |∂L/∂s| ${number(gradientSum, 2)} · ${rest}`;
    Object.assign(this.sum.dataset, { total, first, second, effective, hardest, gradientSum });
  }

  // The formula of a cell with its numbers; empty while the lab is locked.
  formula([i, j]) {
    if (this.lab.isLocked) return "";
    const { rows, columns, gradient, count, weight } = this.result;
    const term = ({ positives, probability, counted }, a, b) => {
      const positiveCount = positives[a].filter(Boolean).length;
      if (!counted[a]) return null;
      const target = positives[a][b] ? number(1 / positiveCount, positiveCount === 1 ? 0 : 3) : "0";
      return `(${number(probability[a][b])} − ${target})`;
    };
    const terms = [term(rows, i, j), columns ? term(columns, j, i) : null].filter(Boolean);
    if (!terms.length) {
      return rows.positives[i].some(Boolean) ? "∂L/∂s = 0: the mask removed all negatives of this row"
        : `∂L/∂s = 0: the pair of this row is labeled negative, so the row has no term in the loss${columns ? "; nor has the column" : ""}`;
    }
    const sum = terms.length > 1 ? `[${terms.join(" + ")}]` : terms[0];
    const half = weight === 1 ? "" : "½ · ";
    return `∂L/∂s = ${half}${sum} / (${count} · ${this.settings.temperature}) = ${number(gradient[i][j])}`;
  }

  facts([i, j]) {
    const { similarity, logits, rows, columns, judged, bumps } = this.result;
    const judge = this.settings.mask === "guide" ? "of the guide " : "";
    const limit = (a) => number(maskLimit(judged, a, this.settings));
    const probability = (direction, a, b) => (direction.candidates[a][b] ? number(direction.probability[a][b])
      : direction.masked[a][b] ? `removed by the mask: cosine ${judge}${number(judged[i][j])} above ${limit(a)}` : "excluded");
    return [
      `s = ${number(similarity[i][j])}`, `s/τ = ${number(logits[i][j], 2)}`,
      `p (document given query) = ${probability(rows, i, j)}`,
      ...(columns && !this.lab.isLocked ? [`p (query given document) = ${probability(columns, j, i)}`] : []),
      ...(bumps && i !== j && rows.candidates[i][j] ? [`hardness weight: × ${number(Math.exp(bumps[i][j]), 1)}`] : []),
    ];
  }

  highlight(hovered, pinned) {
    for (const panel of Object.values(this.panels)) panel.highlight(hovered, pinned);
  }
}
