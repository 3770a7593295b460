// One setting of the loss on a batch: controls, panels and the sum.

const LABELS = {
  temperature: "Temperature τ", symmetric: "Symmetric", directions: "Directions", normalization: "Normalization",
  labeled_negatives: "Labeled negatives", duplicates: "Repeated texts", reduction: "Two directions",
  average: "Averaged over", threshold: "Positive if label exceeds", mask: "False-negative mask", mask_margin: "Mask margin",
  mask_margin_kind: "Kind of mask margin",
  hardness: "Hardness weights", hardness_strength: "Hardness strength", decoupled: "Decoupled", debiased_prior: "Debiased prior",
};
const OPTIONS = { // the values of a setting, and what they do
  normalization: {
    l2: "each vector has length 1", l2_columns: "each coordinate has length 1 over the batch",
    range_columns: "each coordinate is divided by its range", minmax_columns: "each coordinate is moved to 0 to 1", none: "",
  },
  duplicates: { keep: "copies are negatives", merge: "one copy is left", multi_positive: "copies are positives" },
  reduction: { mean: "", sum: "" },
  average: { batch: "all pairs", positives: "positive pairs" },
  mask: { none: "", self: "by the trained model", guide: "by a guide model" },
  mask_margin_kind: { absolute: "", relative: "a share of the similarity of the positive" },
  hardness: { none: "", in_batch_negatives: "" },
};
const NUMBERS = {
  threshold: { min: 0, max: 1, step: 0.05 }, mask_margin: { min: -2, max: 2, step: 0.05 },
  hardness_strength: { min: 0, max: 100, step: 1 }, debiased_prior: { min: 0, max: 0.99, step: 0.05 },
};
// All sets of directions, as settings.
const DIRECTION_SETS = [
  ...[false, true].map((symmetric) => ({ symmetric, partition: "per_direction", directions: [] })),
  ...[["doc_to_query"], ["query_to_query"], ["doc_to_doc"], ["query_to_query", "doc_to_doc"],
    ["doc_to_query", "query_to_query"], ["doc_to_query", "doc_to_doc"], DIRECTIONS.slice(1)].map((more) =>
    ({ symmetric: more.includes("doc_to_query"), partition: "joint", directions: ["query_to_doc", ...more] })),
];
function directionsText(settings) {
  const names = directionsOf(settings), text = names.includes("doc_to_query") ? "query ↔ document" : "query → document";
  const sides = Object.keys(SAME_SIDE).filter((side) => names.includes(SAME_SIDE[side]));
  return [text, ...sides].join(" + ") + (isJoint(settings) ? ": joint softmax" : "");
}
const MORE = ["labeled_negatives", "hardness", "reduction", "average", "threshold", "mask_margin", "mask_margin_kind",
  "hardness_strength", "decoupled", "debiased_prior"];
const NEEDED = { mask_margin: "mask", mask_margin_kind: "mask", hardness_strength: "hardness" }; // what a setting refers to
const [MIN_TAU, MAX_TAU, SLIDER_STEPS] = [0.01, 10, 300]; // 100 steps from 0.1 to 1
const toSlider = (tau) => Math.round((SLIDER_STEPS * Math.log(tau / MIN_TAU)) / Math.log(MAX_TAU / MIN_TAU));
const subscript = (index) => [...String(index + 1)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
const fromSlider = (value) => Number((MIN_TAU * (MAX_TAU / MIN_TAU) ** (value / SLIDER_STEPS)).toPrecision(3));

class Board {
  // onChange(settings, isDone) is called on every change of a control; isDone: the control was released.
  constructor(lab, name, onChange) {
    Object.assign(this, { lab, name, onChange, isDragging: false, updaters: {}, anchors: "rows", present: new Set() });
    this.allGroups = {}; // the panels of queries and documents, of the queries, and of the documents, as far as used
    this.matrices = element("div", { class: "matrices" });
    this.panels = this.group("").panels;
    this.anchorButton = element("button", { type: "button", class: "toggle", onclick: () => {
      this.anchors = this.anchors === "rows" ? "columns" : "rows";
      this.paint();
      this.lab.refresh(); // the legend lists the marks of the selected anchors
    } });
    this.panels.softmax?.legend.append(this.anchorButton);
    this.sum = element("p", { class: "sum", "aria-live": "polite", title: "L0: softmax of each query over the documents. "
      + "L1: softmax of each document over the queries. Effective negatives: number of negatives with an equal share of the "
      + "gradient that have the same entropy, on average over the rows." });
    this.root = element("div", { class: "board" }, ...(name ? [element("h2", {}, `Setting ${name}`)] : []), this.buildControls(),
      this.sum, this.matrices);
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

  // The panels of queries and documents, or of the texts of one side.
  group(side) {
    return (this.allGroups[side] ??= this.buildGroup(side));
  }

  buildGroup(side) {
    const kinds = { similarity: "similarity", softmax: "probability", gradient: "gradient" }, names = this.lab.panels;
    const panels = Object.fromEntries(names.map((name, index) =>
      [name, new Panel(kinds[name], this.lab, !index, side || undefined)]));
    const slot = () => element("div", { class: "slot" }); // a reserved area for the card of a cell
    const grid = element("div", { class: names.length === 2 ? "panels two" : "panels", "data-side": side },
      ...Object.values(panels).flatMap((panel, index) => (index ? [slot(), panel.root] : [panel.root])));
    grid.style.setProperty("--size", this.lab.batch.queries.length);
    grid.style.setProperty("--panels", names.length);
    return { side, panels, root: element("div", { class: "group" }, grid, slot()) };
  }

  // The groups of panels that are shown.
  get groups() {
    return ["", ...Object.keys(SAME_SIDE).filter((side) => this.result[side])].map((side) => this.group(side));
  }

  // Whether the board shows a cell.
  has([, , side]) {
    return !side || Boolean(this.result[side]);
  }

  control(name) {
    if (name === "temperature") return this.sliderControl(name, { min: MIN_TAU, max: MAX_TAU, step: "any" },
      { min: 0, max: SLIDER_STEPS, step: 1 }, toSlider, fromSlider);
    if (name in this.lab.sliders) return this.sliderControl(name, this.lab.sliders[name], this.lab.sliders[name]);
    if (name in NUMBERS) return this.numberControl(name, NUMBERS[name]);
    if (name === "directions") {
      const options = Object.fromEntries(DIRECTION_SETS.map((set) => [directionsText(set), set]));
      return this.selectControl(name, Object.keys(options).map((text) => [text, text]), (text) => options[text],
        () => directionsText(this.settings));
    }
    if (name in OPTIONS) {
      const options = Object.entries(OPTIONS[name]).filter(([option]) => option !== "guide" || this.lab.batch.guide);
      const texts = options.map(([option, about]) => [option, about ? `${option}: ${about}` : option]);
      return this.selectControl(name, texts, (option) => ({ [name]: option }));
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

  // options: [value, text] of each. changesOf(value): changes of the settings. valueOf(setting): the selected value.
  selectControl(name, options, changesOf, valueOf = String) {
    const select = element("select", { onchange: () => this.set(changesOf(select.value), true) },
      ...options.map(([value, text]) => element("option", { value }, text)));
    this.updaters[name] = (setting) => this.update(select, name, valueOf(setting));
    return element("label", { title: this.lab.help[name] }, LABELS[name], select);
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
    const { similarity, rows, columns, gradient } = (this.result = this.lab.explain(this.settings));
    for (const [name, update] of Object.entries(this.updaters)) update(this.settings[name]);
    if (!columns) this.anchors = "rows";
    const marks = this.changedMarks();
    const sides = this.groups.map((group) => group.side).join();
    if (this.matrices.dataset.sides !== sides) this.matrices.replaceChildren(...this.groups.map((group) => group.root));
    this.matrices.dataset.sides = sides;
    const isCosine = this.settings.normalization === "l2", isRows = this.anchors === "rows";
    this.anchorButton.textContent = `Show ${isRows ? "document → queries (each column)" : "query → documents (each row)"}`;
    this.anchorButton.hidden = !columns || this.lab.isLocked;
    const { decoupled, debiased_prior: prior } = this.settings; // probabilities are derivatives of the log denominator
    const remark = prior > 0 && !this.isLesson ? "; positives may be below 0" : decoupled ? ", without the positive" : "";
    const joint = isJoint(this.settings), measure = isCosine ? "Cosine" : "Dot product";
    const sums = (line) => (decoupled && prior > 0 ? "derivatives of the log denominator, which can exceed 1"
      : `${joint ? "joint softmax" : `each ${line} sums to 1`}${remark}`);
    for (const { side, panels } of this.groups) {
      const cells = this.result[side];
      const contents = side ? {
        similarity: { values: cells.similarity, title: `${measure} of the ${side}` },
        softmax: { values: cells.probability, title: `Probability of the other ${side}`, unit: sums("row") },
        gradient: { values: cells.gradient, title: `Gradient of the ${side}: push`, unit: "∂L/∂s" },
      } : {
        similarity: { values: similarity, title: `${measure} of each query and document` },
        softmax: {
          values: isRows ? rows.probability : transpose(columns.probability), unit: sums(isRows ? "row" : "column"),
          title: `Probability, ${isRows ? "query → documents" : "document → queries"}`,
          marks: marks?.[this.anchors],
        },
        gradient: {
          values: gradient, ...(this.lab.by_logits ? {
            unit: "∂Lᵢ/∂zᵢⱼ; each row sums to 0", title: "Gradient of the loss of each query with respect to the logits",
          } : {
            unit: columns ? "∂L/∂s of both directions" : joint ? "∂L/∂s" : "∂L/∂s; each row sums to 0",
            title: "Gradient: pull (green), push (orange)",
          }),
        },
      };
      for (const [name, panel] of Object.entries(panels)) {
        const describe = (value) => `${panel.kind} ${number(value)}`;
        panel.paint({ unit: measure.toLowerCase(), marks: marks?.[side || "rows"], describe, ...contents[name] });
      }
    }
    this.showSum();
  }

  // The marks of all cells by direction, or null if they are those of the last call: the temperature does not change them.
  changedMarks() {
    const key = JSON.stringify({ ...this.settings, temperature: 0, anchors: this.anchors });
    if (key === this.marksKey) return null;
    this.marksKey = key;
    const { length } = this.result.similarity, of = (anchors) => matrix(length, length, (i, j) => this.marks(i, j, anchors));
    const used = ["rows", "columns", ...Object.keys(SAME_SIDE)].filter((anchors) => this.result[anchors]);
    const marks = Object.fromEntries(used.map((anchors) => [anchors, of(anchors)]));
    const shown = this.groups.map(({ side }) => marks[side || this.anchors]);
    this.present = new Set(shown.flat(2).flatMap((names) => names.split(" ")));
    return marks;
  }

  // The border of a cell marks the pair on the diagonal, another positive, a false negative, or an excluded cell.
  // anchors: rows, columns, or a side. An anchor of a pair that is labeled negative has no term in the loss, so no text
  // is its false negative.
  marks(i, j, anchors) {
    const { batch } = this.lab, { positive } = this.result;
    const [anchor, candidate] = anchors === "columns" ? [j, i] : [i, j];
    const { positives, candidates } = this.result[anchors], isPositive = positives[anchor][candidate];
    const isSide = anchors in SAME_SIDE;
    const mark = isSide ? "" : i === j ? (positive[i] ? "pair" : "negative") : isPositive ? "positive" : "";
    const isSameQuery = batch.query_ids[i] === batch.query_ids[j], isSameDocument = batch.document_ids[i] === batch.document_ids[j];
    const answers = (isSameDocument && positive[i]) || (isSameQuery && positive[j]); // the document answers the query
    const isRepeated = isSide ? (anchors === "queries" ? isSameQuery : isSameDocument) : answers;
    const isFalseNegative = i !== j && isRepeated && positive[anchor] && !isPositive;
    const out = candidates[anchor][candidate] ? "" : this.result[anchors].masked[anchor][candidate] ? "masked" : "out";
    const isReworded = !isSide && batch.false_negatives.some(([query, document]) => query === i && document === j);
    return [mark, isFalseNegative ? "copy" : isReworded ? "reworded" : "", out].join(" ");
  }

  // Lessons show fewer matrices, and of the numbers the loss alone.
  get isLesson() {
    return Object.keys(this.panels).length < 3;
  }

  showSum() {
    const { first, second, weight, effective, hardest, total, gradientSum } = this.result;
    const parts = `L0 (query → document) ${number(first)}${second === null ? "" : ` + L1 (document → query) ${number(second)}`}`;
    const loss = isJoint(this.settings) ? `Loss ${number(total)} (${directionsText(this.settings)})`
      : second === null ? `Loss ${parts}` : `Loss ${number(total)} = ${weight === 1 ? parts : `½ · [${parts}]`}`;
    const rest = hardest < 0
      ? "effective negatives and largest loss: not defined, no pair is positive"
      : `effective negatives ${number(effective, 1)} · largest loss: query ${hardest + 1}`;
    if (this.isLesson) this.sum.textContent = second === null ? `Loss of the batch in the matrix: ${number(first)}` : loss;
    else this.sum.textContent = `${loss} · sum of |∂L/∂s| ${number(gradientSum, 2)} · ${rest}`;
    Object.assign(this.sum.dataset, { total, first, second, effective, hardest, gradientSum });
  }

  // The directions that a cell is in: {direction, anchor, candidate, of what its probability is}.
  directionsAt([i, j, side]) {
    const { rows, columns } = this.result;
    if (!side) {
      return [{ direction: rows, a: i, b: j, name: "document given query" },
        ...(columns && !this.lab.isLocked ? [{ direction: columns, a: j, b: i, name: "query given document" }] : [])];
    }
    const [kind] = axesOf(side), name = (a, b) => `${kind} ${b + 1} given ${kind} ${a + 1}`;
    const cells = i === j ? [[i, j]] : [[i, j], [j, i]];
    return cells.map(([a, b]) => ({ direction: this.result[side], a, b, name: name(a, b) }));
  }

  // The formula of a cell with its numbers; empty while the lab is locked.
  formula(cell) {
    if (this.lab.isLocked) return "";
    const [i, j, side] = cell, { count, weight, positive } = this.result, parts = this.directionsAt(cell);
    if (side && i === j) return `∂L/∂s = 0: a ${axesOf(side)[0]} is not compared with itself`;
    const terms = parts.filter(({ direction, a }) => direction.counted[a]).map(({ direction, a, b }) => {
      const target = direction.target[a][b];
      return `(${number(direction.probability[a][b])} − ${number(target, Number.isInteger(target) ? 0 : 3)})`;
    });
    if (!terms.length) {
      return positive[i] ? "∂L/∂s = 0: the mask excluded all negatives of this row"
        : "∂L/∂s = 0: the pair of this row is labeled negative, so the row has no term in the loss"
          + (parts.length > 1 ? "; nor has the column" : "");
    }
    const sum = terms.length > 1 ? `[${terms.join(" + ")}]` : terms[0];
    if (this.lab.by_logits) return `∂L${subscript(i)}/∂z${subscript(i)}${subscript(j)} = ${sum} = ${number(this.result.gradient[i][j])}`;
    const half = weight === 1 ? "" : "½ · ", { gradient } = side ? this.result[side] : this.result;
    return `∂L/∂s = ${half}${sum} / (${count} · ${this.settings.temperature}) = ${number(gradient[i][j])}`;
  }

  facts(cell) {
    const [i, j, side] = cell, { similarity, logits, bumps, candidates } = this.result[side ?? "rows"];
    const guide = this.settings.mask === "guide" ? "of the guide model " : "";
    const probability = ({ candidates, masked, probability, compared, limits }, a, b) => {
      if (candidates[a][b]) return number(probability[a][b]);
      if (!masked[a][b]) return "excluded";
      return `excluded by the mask: cosine ${guide}${number(compared[a][b])} above ${number(limits[a])}`;
    };
    return [
      `s = ${number(similarity[i][j])}`, `s/τ = ${number(logits[i][j], 2)}`,
      ...this.directionsAt(cell).map(({ direction, a, b, name }) => `p (${name}) = ${probability(direction, a, b)}`),
      ...(bumps && i !== j && candidates[i][j] ? [`hardness weight: s/τ ${bumps[i][j] < 0 ? "−" : "+"} ${number(Math.abs(bumps[i][j]), 2)}, so exp(s/τ) × ${number(Math.exp(bumps[i][j]), 1)}`] : []),
    ];
  }

  highlight(hovered, pinned) {
    const panels = Object.values(this.allGroups).flatMap((group) => Object.values(group.panels));
    for (const panel of panels) panel.highlight(hovered, pinned);
  }
}
