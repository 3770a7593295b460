// A toy training played step by step: points with arrows, the matrix of cosines, and the curves, all of one step.

const SVG = "http://www.w3.org/2000/svg";
const SIZE = 320, MARGIN = 14, EDGE = 16, CURVE_HEIGHT = 84, FRAME_MS = 60;
const svg = (tag, attributes = {}, text = "") => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
};
const html = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
};
const shown = (value, digits = 3) => value.toFixed(digits).replace("-", "\u2212");
const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
function colourAt(scale, place) {
  const at = Math.min(1, Math.max(0, place)) * (scale.length - 1);
  const low = Math.min(scale.length - 2, Math.floor(at));
  const [from, to] = [channels(scale[low]), channels(scale[low + 1])];
  return `rgb(${from.map((value, c) => Math.round(value + (to[c] - value) * (at - low)))})`;
}

class Player {
  constructor(root, data) {
    Object.assign(this, { root, data, step: 0, timer: null, pairs: data.pairs, last: data.loss.length - 1 });
    this.reach = Math.max(1, ...data.points.flat(2).map(Math.abs)) * 1.12;
    this.longest = Math.max(1e-9, ...data.moves.flatMap((state) => state.map(([x, y]) => Math.hypot(x, y))));
    this.plane = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" });
    this.matrix = svg("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" });
    this.curves = html("div", { class: "curves" });
    root.replaceChildren(this.bar(), html("div", { class: "views" },
      this.figure("Where the texts lie, and where the loss moves them", this.plane),
      this.figure("Cosine of every query (row) with every document (column)", this.matrix, this.scale()),
      this.figure("Loss and temperature by step", this.curves)), this.legend());
    this.buildPlane();
    this.buildMatrix();
    this.buildCurves();
    this.show(0);
  }

  figure(title, ...pictures) {
    return html("figure", {}, html("figcaption", {}, title), ...pictures);
  }

  scale() {
    const bar = html("span", { class: "scale" });
    bar.style.background = `linear-gradient(to right, ${this.data.colours.join(", ")})`;
    return html("p", { class: "legend" }, "\u22121", bar, "1");
  }

  bar() {
    this.button = html("button", { type: "button" });
    this.button.onclick = () => (this.timer ? this.pause() : this.play());
    this.slider = html("input", { type: "range", min: "0", max: String(this.last), step: "1", "aria-label": "Step" });
    this.slider.oninput = () => { this.pause(); this.show(Number(this.slider.value)); };
    this.said = html("output");
    const bar = html("div", { class: "bar" }, this.button, this.slider, this.said);
    bar.onkeydown = (event) => {
      if (event.key !== " " || event.target === this.button) return;
      this.button.click();
      event.preventDefault();
    };
    this.label();
    return bar;
  }

  legend() {
    const entry = (kind, words) => html("span", {}, html("i", { class: kind }), words);
    return html("p", { class: "legend" }, entry("query", "query"), entry("document", "document"),
      ...(this.data.positive.some(Boolean) ? [entry("pair", "a pair")] : []),
      ...(this.data.positive.every(Boolean) ? [] : [entry("pair wrong", "a pair labelled negative")]), entry("move", "where the loss moves it, longer is stronger"));
  }

  x(value) { return SIZE / 2 + (value / this.reach) * (SIZE / 2 - MARGIN); }
  y(value) { return SIZE / 2 - (value / this.reach) * (SIZE / 2 - MARGIN); }

  buildPlane() {
    const defs = svg("defs");
    const tip = svg("marker", { id: "tip", viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto" });
    tip.append(svg("path", { d: "M0 0 L6 3 L0 6 z", class: "tip" }));
    defs.append(tip);
    this.plane.append(defs, svg("circle", { cx: this.x(0), cy: this.y(0), r: this.x(1) - this.x(0), class: "circle" }));
    const many = (tag, count, attributes) => Array.from({ length: count }, (_, i) => {
      const made = svg(tag, attributes(i));
      this.plane.append(made);
      return made;
    });
    this.links = many("line", this.pairs, (i) => ({ class: this.data.positive[i] ? "link" : "link wrong" }));
    this.arrows = many("line", 2 * this.pairs, () => ({ class: "arrow", "marker-end": "url(#tip)" }));
    this.dots = many("circle", 2 * this.pairs, (i) => ({ r: 6.5, class: i < this.pairs ? "query" : "document" }));
    this.names = many("text", 2 * this.pairs, () => ({ class: "name" }));
    this.dots.forEach((dot, i) => dot.append(svg("title", {}, this.data.texts[i])));
    this.names.forEach((name, i) => { name.textContent = String((i % this.pairs) + 1); });
  }

  buildMatrix() {
    const cell = (SIZE - EDGE) / this.pairs;
    this.cells = [];
    this.numbers = [];
    const number = (x, y, at) => this.matrix.append(svg("text", { x, y, class: "place" }, String(at + 1)));
    for (let i = 0; i < this.pairs; i++) {
      number(EDGE / 2, EDGE + (i + 0.5) * cell + 3, i);
      number(EDGE + (i + 0.5) * cell, EDGE / 2 + 3, i);
      for (let j = 0; j < this.pairs; j++) {
        const [x, y] = [EDGE + j * cell, EDGE + i * cell];
        const own = this.data.positive[i] ? "own" : "wrong";
        const box = svg("rect", { x: x + 1, y: y + 1, width: cell - 2, height: cell - 2, rx: 3, class: i === j ? own : "" });
        box.append(svg("title"));
        const value = svg("text", { x: x + cell / 2, y: y + cell / 2 + 3, class: "cosine" });
        this.matrix.append(box, value);
        this.cells.push(box);
        this.numbers.push(value);
      }
    }
  }

  buildCurves() {
    const kinds = [["loss", "Loss", this.data.loss], ["temperature", "Temperature τ", this.data.temperature]];
    this.cursors = kinds.filter(([, , values]) => values).map(([kind, title, values]) => {
      const [low, high] = [Math.min(...values, 0), Math.max(...values)];
      const at = (value) => CURVE_HEIGHT - 8 - ((value - low) / (high - low || 1)) * (CURVE_HEIGHT - 16);
      const across = (step) => 4 + (step / this.last) * (SIZE - 8);
      const picture = svg("svg", { viewBox: `0 0 ${SIZE} ${CURVE_HEIGHT}`, role: "img", "aria-label": `${title} from ${shown(values[0])} to ${shown(values[this.last])}` });
      const line = svg("polyline", { class: `curve ${kind}`, points: values.map((value, step) => `${across(step)},${at(value)}`).join(" ") });
      const cursor = svg("circle", { r: 4.5, class: `cursor ${kind}` });
      const tick = (x, y, text, anchor) => svg("text", { x, y, class: "tick", "text-anchor": anchor }, text);
      picture.append(line, cursor, tick(SIZE, 9, shown(high), "end"), tick(SIZE, CURVE_HEIGHT - 1, shown(low), "end"),
        tick(0, CURVE_HEIGHT + 10, "step 0", "start"), tick(SIZE, CURVE_HEIGHT + 10, `step ${this.last}`, "end"));
      const said = html("span", { class: "value" });
      this.curves.append(html("div", { class: "curve-name" }, title, said), picture);
      return (step) => {
        cursor.setAttribute("cx", across(step));
        cursor.setAttribute("cy", at(values[step]));
        said.textContent = shown(values[step]);
      };
    });
  }

  show(step) {
    this.step = step;
    this.slider.value = String(step);
    const points = this.data.points[step], moves = this.data.moves[step];
    const place = (line, [x1, y1], [x2, y2]) => {
      const ends = { x1: this.x(x1), y1: this.y(y1), x2: this.x(x2), y2: this.y(y2) };
      for (const [name, value] of Object.entries(ends)) line.setAttribute(name, value);
    };
    this.links.forEach((link, i) => place(link, points[i], points[i + this.pairs]));
    points.forEach(([x, y], i) => {
      this.dots[i].setAttribute("cx", this.x(x));
      this.dots[i].setAttribute("cy", this.y(y));
      this.names[i].setAttribute("x", this.x(x));
      this.names[i].setAttribute("y", this.y(y) + 3);
      const length = Math.hypot(...moves[i]);
      const drawn = length > 1e-4 * this.longest ? 0.45 * Math.sqrt(length / this.longest) / length : 0;
      place(this.arrows[i], [x, y], [x + moves[i][0] * drawn, y + moves[i][1] * drawn]);
      this.arrows[i].style.display = drawn ? "" : "none";
    });
    this.data.similarity[step].flat().forEach((value, at) => {
      this.cells[at].style.fill = colourAt(this.data.colours, (value + 1) / 2);
      this.cells[at].firstChild.textContent = shown(value, 2);
      this.numbers[at].textContent = this.pairs <= 8 ? shown(value, 2) : "";
    });
    for (const cursor of this.cursors) cursor(step);
    this.tell(step);
  }

  tell(step) {
    const correct = Math.round(this.data.correct[step] * this.data.positive.filter(Boolean).length);
    const asked = this.data.positive.filter(Boolean).length;
    const words = `Step ${step} of ${this.last}: loss ${shown(this.data.loss[step])}, own document nearest for ${correct} of ${asked}`;
    this.said.textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
    this.plane.setAttribute("aria-label", `${words}. ${this.pairs} queries and their documents as points with arrows.`);
    this.matrix.setAttribute("aria-label", `${words}. Cosines of ${this.pairs} queries with ${this.pairs} documents.`);
    Object.assign(this.root.dataset, { step: String(step), loss: String(this.data.loss[step]) });
  }

  label() {
    const words = this.timer ? "Pause" : this.step === this.last ? "Play again" : "Play";
    this.button.textContent = words;
  }

  play() {
    if (this.step === this.last) this.show(0);
    this.timer = setInterval(() => {
      if (!this.root.isConnected) return this.pause();
      this.show(Math.min(this.last, this.step + 1));
      if (this.step === this.last) this.pause();
    }, FRAME_MS);
    this.label();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.label();
  }
}

const players = new WeakMap();

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".player");
  const known = players.get(root);
  if (known?.data.id === data.id) return;
  known?.pause();
  const player = new Player(root, data);
  players.set(root, player);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) player.show(player.last);
  else player.play();
  player.label();
}
