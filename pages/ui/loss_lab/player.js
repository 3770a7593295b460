// A toy training step by step: points with arrows, the matrix of cosines, and the curves.

const SIZE = 320, MARGIN = 14, EDGE = 16, CURVE_HEIGHT = 84, FRAME_MS = 60;
const range = (count, build) => Array.from({ length: count }, (_, index) => build(index));
const setAll = (node, attributes) => filled(node, attributes, []);
const picture = (height = SIZE) => svg("svg", { viewBox: `0 0 ${SIZE} ${height}`, role: "img" });

class Player {
  constructor(root, data) {
    Object.assign(this, { root, data, step: 0, timer: null, last: data.loss.length - 1 });
    this.extent = Math.max(1, ...data.points.flat(2).map(Math.abs)) * 1.12;
    this.maxMove = Math.max(1e-9, ...data.moves.flatMap((moves) => moves.map(([x, y]) => Math.hypot(x, y))));
    const scale = element("span", { class: "scale" });
    scale.style.background = `linear-gradient(to right, ${data.colors})`;
    const figure = (title, ...content) => element("figure", {}, element("figcaption", {}, title), ...content);
    root.replaceChildren(this.buildBar(), element("div", { class: "views" },
      figure("Texts, and the direction in which the loss moves them", this.buildPlane()),
      figure("Cosine of every query (row) with every document (column)", this.buildMatrix(),
        element("p", { class: "legend" }, "\u22121", scale, "1")),
      figure("Loss and temperature by step", this.buildCurves())), this.buildLegend());
    this.show(0);
  }

  buildBar() {
    this.button = element("button", { type: "button", onclick: () => (this.timer ? this.pause() : this.play()) });
    this.slider = element("input", { type: "range", min: 0, max: this.last, step: 1, "aria-label": "Step", oninput: () => {
      this.pause();
      this.show(Number(this.slider.value));
    } });
    this.status = element("output");
    return element("div", { class: "bar", onkeydown: (event) => {
      if (event.key !== " " || event.target === this.button) return;
      this.button.click();
      event.preventDefault();
    } }, this.button, this.slider, this.status);
  }

  buildLegend() {
    const { positive } = this.data;
    const entries = {
      query: "query", document: "document",
      ...(positive.some(Boolean) && { pair: "positive pair" }),
      ...(!positive.every(Boolean) && { "pair wrong": "negative pair" }),
      move: "direction in which the loss moves a text (longer: stronger)",
    };
    return element("p", { class: "legend" }, ...Object.entries(entries).map(([mark, label]) =>
      element("span", {}, element("i", { class: mark }), label)));
  }

  x(value) { return SIZE / 2 + (value / this.extent) * (SIZE / 2 - MARGIN); }
  y(value) { return SIZE / 2 - (value / this.extent) * (SIZE / 2 - MARGIN); }

  buildPlane() {
    const { pairs, positive, texts } = this.data;
    const tip = svg("marker", { id: "tip", viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto" },
      svg("path", { d: "M0 0 L6 3 L0 6 z", class: "tip" }));
    this.links = range(pairs, (i) => svg("line", { class: positive[i] ? "link" : "link wrong" }));
    this.arrows = range(2 * pairs, () => svg("line", { class: "arrow", "marker-end": "url(#tip)" }));
    this.dots = range(2 * pairs, (i) =>
      svg("circle", { r: 6.5, class: i < pairs ? "query" : "document" }, svg("title", {}, texts[i])));
    this.names = range(2 * pairs, (i) => svg("text", { class: "name" }, (i % pairs) + 1));
    const circle = svg("circle", { cx: this.x(0), cy: this.y(0), r: this.x(1) - this.x(0), class: "circle" });
    this.plane = picture();
    this.plane.append(svg("defs", {}, tip), circle, ...this.links, ...this.arrows, ...this.dots, ...this.names);
    return this.plane;
  }

  buildMatrix() {
    const { pairs, positive } = this.data, side = (SIZE - EDGE) / pairs;
    this.matrix = picture();
    this.cells = [];
    const start = (index) => EDGE + index * side;
    for (let i = 0; i < pairs; i++) {
      const header = (x, y) => svg("text", { x, y, class: "header" }, i + 1);
      this.matrix.append(header(EDGE / 2, start(i + 0.5) + 3), header(start(i + 0.5), EDGE / 2 + 3));
      for (let j = 0; j < pairs; j++) {
        const mark = i !== j ? "" : positive[i] ? "pair" : "wrong", title = svg("title");
        const box = svg("rect", { x: start(j) + 1, y: start(i) + 1, width: side - 2, height: side - 2, rx: 3, class: mark }, title);
        const text = svg("text", { x: start(j + 0.5), y: start(i + 0.5) + 3, class: "cosine" });
        this.matrix.append(box, text);
        this.cells.push({ box, title, text });
      }
    }
    return this.matrix;
  }

  buildCurves() {
    const curves = [["loss", "Loss", this.data.loss], ["temperature", "Temperature τ", this.data.temperature]];
    const drawn = curves.filter(([, , values]) => values).map(([kind, title, values]) => {
      const [low, high] = [Math.min(...values, 0), Math.max(...values)];
      const x = (step) => 4 + (step / this.last) * (SIZE - 8);
      const y = (value) => CURVE_HEIGHT - 8 - ((value - low) / (high - low || 1)) * (CURVE_HEIGHT - 16);
      const tick = (x, y, text, anchor) => svg("text", { x, y, class: "tick", "text-anchor": anchor }, text);
      const cursor = svg("circle", { r: 4.5, class: `cursor ${kind}` }), value = element("span", { class: "value" });
      const plot = setAll(picture(CURVE_HEIGHT), { "aria-label": `${title} from ${number(values[0])} to ${number(values[this.last])}` });
      plot.append(
        svg("polyline", { class: `curve ${kind}`, points: values.map((value, step) => `${x(step)},${y(value)}`).join(" ") }), cursor,
        tick(SIZE, 9, number(high), "end"), tick(SIZE, CURVE_HEIGHT - 1, number(low), "end"),
        tick(0, CURVE_HEIGHT + 10, "step 0", "start"), tick(SIZE, CURVE_HEIGHT + 10, `step ${this.last}`, "end"));
      const moveCursor = (step) => {
        setAll(cursor, { cx: x(step), cy: y(values[step]) });
        value.textContent = number(values[step]);
      };
      return { moveCursor, nodes: [element("div", { class: "curve-name" }, title, value), plot] };
    });
    this.cursors = drawn.map((curve) => curve.moveCursor);
    return element("div", { class: "curves" }, ...drawn.flatMap((curve) => curve.nodes));
  }

  show(step) {
    const { pairs, colors } = this.data, points = this.data.points[step], moves = this.data.moves[step];
    this.step = step;
    this.slider.value = String(step);
    const connect = (line, [x1, y1], [x2, y2]) =>
      setAll(line, { x1: this.x(x1), y1: this.y(y1), x2: this.x(x2), y2: this.y(y2) });
    this.links.forEach((link, i) => connect(link, points[i], points[i + pairs]));
    points.forEach(([x, y], i) => {
      setAll(this.dots[i], { cx: this.x(x), cy: this.y(y) });
      setAll(this.names[i], { x: this.x(x), y: this.y(y) + 3 });
      const length = Math.hypot(...moves[i]);
      const factor = length > 1e-4 * this.maxMove ? 0.45 * Math.sqrt(length / this.maxMove) / length : 0;
      connect(this.arrows[i], [x, y], [x + moves[i][0] * factor, y + moves[i][1] * factor]);
      this.arrows[i].style.display = factor ? "" : "none";
    });
    this.data.similarity[step].flat().forEach((value, index) => {
      const { box, title, text } = this.cells[index];
      box.style.fill = `rgb(${colorAt(colors, (value + 1) / 2)})`;
      title.textContent = number(value, 2);
      text.textContent = pairs <= 8 ? number(value, 2) : "";
    });
    for (const moveCursor of this.cursors) moveCursor(step);
    this.showStatus(step);
  }

  showStatus(step) {
    const { pairs, loss, positive } = this.data, queries = positive.filter(Boolean).length;
    const correct = Math.round(this.data.correct[step] * queries);
    const text = `Step ${step} of ${this.last}: loss ${number(loss[step])}, the positive ranks first for ${correct} of ${queries} queries`;
    this.status.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    this.plane.setAttribute("aria-label", `${text}. ${pairs} queries and their documents as points with arrows.`);
    this.matrix.setAttribute("aria-label", `${text}. Cosines of ${pairs} queries with ${pairs} documents.`);
    Object.assign(this.root.dataset, { step, loss: loss[step] });
    this.showButton();
  }

  showButton() {
    this.button.textContent = this.timer ? "Pause" : this.step === this.last ? "Play again" : "Play";
  }

  play() {
    if (this.step === this.last) this.show(0);
    this.timer = setInterval(() => {
      if (!this.root.isConnected) return this.pause();
      this.show(Math.min(this.last, this.step + 1));
      if (this.step === this.last) this.pause();
    }, FRAME_MS);
    this.showButton();
  }

  pause() {
    clearInterval(this.timer);
    this.timer = null;
    this.showButton();
  }
}

const players = new WeakMap();

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".player");
  const previous = players.get(root);
  if (previous?.data.id === data.id) return;
  previous?.pause();
  const player = new Player(root, data);
  players.set(root, player);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) player.show(player.last);
  else player.play();
}
