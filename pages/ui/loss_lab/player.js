// Toy trainings of one batch step by step under one slider: points with arrows, the matrix of cosines, and the curves.

const SIZE = 320, MARGIN = 14, EDGE = 16, CURVE_HEIGHT = 84, TICK_WIDTH = 34, FRAME_MS = 60;
const ANGLE_STEP = 5; // degrees of an arrow key
const RING = 0.065; // of the radius: how far queries are inside the circle and documents outside, so that a pair never overlaps
const range = (count, build) => Array.from({ length: count }, (_, index) => build(index));
let markers = 0; // each arrow marker needs an id of its own
const setAll = (node, attributes) => filled(node, attributes, []);
const picture = (height = SIZE) => svg("svg", { viewBox: `0 0 ${SIZE} ${height}`, role: "img" });

// One training: its plane, matrix and curves.
class RunView {
  constructor(player, { loss, trace, title }) {
    Object.assign(this, { player, loss, title, data: player.data, pairs: player.data.texts.length / 2 });
    this.plane = picture();
    this.facts = element("p", { class: "facts" });
    const figure = (title, ...content) => element("figure", {}, element("figcaption", {}, title), ...content);
    const scale = element("span", { class: "scale" });
    scale.style.background = `linear-gradient(to right, ${this.data.colors})`;
    this.curves = element("div", { class: "curves" });
    this.buildPlane();
    const views = [
      figure(this.data.only_points ? "Synthetic pairs, each with a number" : "Texts, and the direction in which the loss moves them",
        this.buildKey(), this.plane),
      figure("Cosine of every query (row) with every document (column)", this.buildMatrix(),
        element("p", { class: "legend" }, "\u22121", scale, "1")),
      figure(this.loss.learn_temperature ? "Loss, smallest gap and temperature by step" : "Loss and smallest gap by step", this.curves)];
    this.root = element("section", { class: "run" },
      ...(this.data.runs.length > 1 ? [element("h3", {}, title)] : []), this.facts,
      element("div", { class: "views" }, ...(this.data.only_points ? views.slice(0, 1) : views)));
    this.load(trace);
  }

  // Shows another training of the same batch and loss.
  load(trace) {
    this.trace = trace;
    this.last = trace.loss.length - 1;
    this.maxMove = Math.max(1e-9, ...trace.moves.flatMap((moves) => moves.map(([x, y]) => Math.hypot(x, y))));
    this.extent = Math.max(1, ...trace.points.flat(2).map(Math.abs)) * 1.12;
    setAll(this.circle, { r: this.x(1) - this.x(0) });
    this.buildCurves();
  }

  x(value) { return SIZE / 2 + (value / this.extent) * (SIZE / 2 - MARGIN); }
  y(value) { return SIZE / 2 - (value / this.extent) * (SIZE / 2 - MARGIN); }

  // The meaning of the colors of the points.
  buildKey() {
    const { circle } = this.data, entries = { query: circle ? "query (inside)" : "query", document: circle ? "document (outside)" : "document" };
    return element("p", { class: "legend" }, ...Object.entries(entries).map(([mark, label]) =>
      element("span", {}, element("i", { class: mark }), label)));
  }

  // The position of a point in the picture; [x, y]: its vector.
  place(index, [x, y]) {
    const scale = this.data.circle ? 1 + (index < this.pairs ? -RING : RING) : 1;
    return [this.x(x * scale), this.y(y * scale)];
  }

  buildPlane() {
    const { pairs } = this, { positive, texts } = this.data, id = `tip${++markers}`;
    const tip = svg("marker", { id, viewBox: "0 0 6 6", refX: 5, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto" },
      svg("path", { d: "M0 0 L6 3 L0 6 z", class: "tip" }));
    this.links = range(pairs, (i) => svg("line", { class: positive[i] ? "link" : "link wrong" }));
    this.arrows = range(2 * pairs, () => svg("line", { class: "arrow", "marker-end": `url(#${id})` }));
    this.dots = range(2 * pairs, (i) => {
      const dot = svg("circle", { r: this.data.circle ? 8 : 6.5, class: i < pairs ? "query" : "document" }, svg("title", {}, texts[i]));
      return this.data.circle ? this.draggable(dot, i) : dot;
    });
    this.names = range(2 * pairs, (i) => svg("text", { class: i < pairs ? "name" : "name on-document" }, (i % pairs) + 1));
    this.circle = svg("circle", { cx: SIZE / 2, cy: SIZE / 2, class: "circle" });
    this.plane.append(svg("defs", {}, tip), this.circle, ...this.links, ...this.arrows, ...this.dots, ...this.names);
  }

  // Lets a point be moved along the circle with the pointer or the arrow keys; both change where the training starts.
  draggable(dot, index) {
    const name = `${index < this.pairs ? "Query" : "Document"} ${(index % this.pairs) + 1}`;
    const angleAt = (event) => {
      const frame = this.plane.getBoundingClientRect();
      const [x, y] = [event.clientX - frame.left - frame.width / 2, frame.top + frame.height / 2 - event.clientY];
      return (Math.atan2(y, x) * 180) / Math.PI;
    };
    return setAll(dot, {
      tabindex: 0, role: "slider", "aria-label": `${name}: angle at the start`, "aria-valuemin": 0, "aria-valuemax": 359,
      onpointerdown: (event) => {
        dot.setPointerCapture(event.pointerId);
        this.player.pause();
        this.player.show(0);
      },
      onpointermove: (event) => { if (dot.hasPointerCapture(event.pointerId)) this.player.move(index, angleAt(event)); },
      onpointerup: () => this.player.released(),
      onkeydown: (event) => {
        const step = { ArrowLeft: 1, ArrowUp: 1, ArrowRight: -1, ArrowDown: -1 }[event.key];
        if (!step) return;
        this.player.pause();
        this.player.move(index, this.player.angles[index] + step * ANGLE_STEP);
        event.preventDefault();
      },
      onkeyup: () => this.player.released(),
    });
  }

  buildMatrix() {
    const { pairs } = this, { positive } = this.data, side = (SIZE - EDGE) / pairs;
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
    const { loss, gap, temperature } = this.trace;
    const curves = [["loss", "Loss", loss], ["gap", "Smallest gap: cosine of the positive minus that of the nearest other document", gap],
      ["temperature", "Temperature τ", this.loss.learn_temperature ? temperature : null]];
    const drawn = curves.filter(([, , values]) => values).map(([kind, title, values]) => {
      const of = kind === "gap" ? this.player.gaps : values; // gaps of several losses have one scale
      const [low, high] = [Math.min(...of, 0), Math.max(...of, kind === "gap" ? 0 : -Infinity)];
      const end = SIZE - TICK_WIDTH, x = (step) => 4 + (step / this.last) * (end - 8);
      const y = (value) => CURVE_HEIGHT - 8 - ((value - low) / (high - low || 1)) * (CURVE_HEIGHT - 16);
      const tick = (x, y, text, anchor) => svg("text", { x, y, class: "tick", "text-anchor": anchor }, text);
      const cursor = svg("circle", { r: 4.5, class: `cursor ${kind}` }), value = element("span", { class: "value" });
      const plot = setAll(picture(CURVE_HEIGHT), { "aria-label": `${title} from ${number(values[0])} to ${number(values[this.last])}` });
      plot.append(
        ...(low < 0 ? [svg("line", { class: "zero", x1: 4, x2: end - 4, y1: y(0), y2: y(0) })] : []),
        svg("polyline", { class: `curve ${kind}`, points: values.map((value, step) => `${x(step)},${y(value)}`).join(" ") }), cursor,
        tick(SIZE, y(high) + 3, number(high), "end"), tick(SIZE, y(low) + 3, number(low), "end"),
        tick(0, CURVE_HEIGHT + 10, "step 0", "start"), tick(end, CURVE_HEIGHT + 10, `step ${this.last}`, "end"));
      const moveCursor = (step) => {
        setAll(cursor, { cx: x(step), cy: y(values[step]) });
        value.textContent = `at this step: ${number(values[step])}`;
      };
      return { moveCursor, nodes: [element("div", { class: "curve-name" }, title, value), plot] };
    });
    this.cursors = drawn.map((curve) => curve.moveCursor);
    this.curves.replaceChildren(...drawn.flatMap((curve) => curve.nodes));
  }

  show(step) {
    const { pairs } = this, points = this.trace.points[step], moves = this.trace.moves[step];
    const connect = (line, [x1, y1], [x2, y2]) => setAll(line, { x1, y1, x2, y2 });
    const places = points.map((point, i) => this.place(i, point));
    this.links.forEach((link, i) => connect(link, places[i], places[i + pairs]));
    points.forEach(([x, y], i) => {
      const [left, top] = places[i];
      setAll(this.dots[i], { cx: left, cy: top });
      setAll(this.names[i], { x: left, y: top + (this.data.circle ? 4 : 3) });
      const length = Math.hypot(...moves[i]);
      const factor = length > 1e-4 * this.maxMove ? 0.45 * Math.sqrt(length / this.maxMove) / length : 0;
      connect(this.arrows[i], places[i], this.place(i, [x + moves[i][0] * factor, y + moves[i][1] * factor]));
      this.arrows[i].style.display = factor ? "" : "none";
      if (this.data.circle) this.dots[i].setAttribute("aria-valuenow", this.player.angles[i]);
    });
    this.trace.similarity[step].flat().forEach((value, index) => {
      const { box, title, text } = this.cells[index];
      const color = colorAt(this.data.colors, (value + 1) / 2);
      box.style.fill = `rgb(${color})`;
      text.style.fill = inkOn(color);
      title.textContent = number(value, 2);
      text.textContent = pairs <= 8 ? number(value, 2) : "";
    });
    for (const moveCursor of this.cursors) moveCursor(step);
    this.facts.textContent = this.describe(step);
    this.plane.setAttribute("aria-label", `${this.title}, step ${step}: ${pairs} queries and their documents as points with arrows.`);
    this.matrix.setAttribute("aria-label", `${this.title}, step ${step}: cosines of ${pairs} queries with ${pairs} documents.`);
  }

  describe(step) {
    const { loss, correct, gap } = this.trace, queries = this.data.positive.filter(Boolean).length;
    return `Loss ${number(loss[step])} · the positive ranks first for ${Math.round(correct[step] * queries)} of ${queries} queries`
      + ` · smallest gap ${number(gap[step])}`;
  }
}

class Player {
  constructor(root, component) {
    const data = { ...component.data, batch: component.data.batch && batchOf(component.data.batch) };
    Object.assign(this, { root, component, data, step: 0, timer: null });
    this.angles = data.circle && [...data.batch.queries, ...data.batch.documents].map(angleOf);
    const traces = this.train(data.batch);
    this.views = data.runs.map((run, index) => new RunView(this, { ...run, trace: traces[index] }));
    this.last = this.views[0].last;
    const runs = element("div", { class: "runs" }, ...this.views.map((view) => view.root));
    root.replaceChildren(this.buildBar(), runs, this.buildLegend());
    this.show(0);
  }

  // Returns the training of each loss; a batch of null has trainings that Python sent.
  train(batch) {
    const traces = this.data.runs.map((run) => run.trace ?? trainPoints(batch, run.loss));
    this.gaps = traces.flatMap((trace) => [...trace.gap]);
    return traces;
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
    const { positive, circle } = this.data;
    const entries = {
      ...(positive.some(Boolean) && { pair: "positive pair" }),
      ...(!positive.every(Boolean) && { "pair wrong": "negative pair" }),
      move: "direction in which the loss moves a text (longer: stronger)",
    };
    return element("p", { class: "legend" }, ...Object.entries(entries).map(([mark, label]) =>
      element("span", {}, element("i", { class: mark }), label)),
      ...(circle ? [] : ["The plane is a projection of more dimensions, so distances in it do not show the cosines exactly."]),
      ...(circle ? ["Drag a point, or select it and use the arrow keys, to change where the training starts."] : []));
  }

  // Moves a point along the circle and trains again.
  move(index, degrees) {
    const { batch } = this.data, pairs = batch.queries.length;
    this.angles[index] = ((Math.round(degrees) % 360) + 360) % 360;
    const points = this.angles.map((angle) => [Math.cos((angle * Math.PI) / 180), Math.sin((angle * Math.PI) / 180)]);
    const moved = { ...batch, queries: points.slice(0, pairs), documents: points.slice(pairs) };
    const traces = this.train(moved);
    this.views.forEach((view, run) => view.load(traces[run]));
    this.show(0);
  }

  // Reports the moved points once they are released.
  released() {
    const sent = JSON.stringify(this.angles);
    if (sent === this.sent) return;
    this.sent = sent;
    this.component.setStateValue("angles", this.angles);
  }

  show(step) {
    this.step = step;
    this.slider.value = String(step);
    for (const view of this.views) view.show(step);
    this.status.textContent = `Step ${step} of ${this.last}`;
    const facts = this.views.map((view) => `${view.title}: ${view.describe(step)}`).join(". ");
    this.slider.setAttribute("aria-valuetext", `Step ${step} of ${this.last}. ${facts}`);
    Object.assign(this.root.dataset, { step, loss: this.views[0].trace.loss[step] });
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

const angleOf = ([x, y]) => (Math.round((Math.atan2(y, x) * 180) / Math.PI) + 360) % 360;
const players = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".player");
  const previous = players.get(root);
  if (previous) previous.component = component;
  if (previous?.data.id === data.id) return;
  if (previous?.data.kind === data.kind && previous.sent && previous.sent === JSON.stringify(data.angles)) {
    previous.data.id = data.id; // the points that were dragged here
    return;
  }
  previous?.pause();
  const player = new Player(root, component);
  players.set(root, player);
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) player.show(player.last);
  else { // a click on the button that trains is above the player, which may be below the window
    const isVisible = root.getBoundingClientRect().bottom <= innerHeight;
    if (navigator.userActivation?.isActive && !isVisible && !data.only_points) root.scrollIntoView({ block: "center", behavior: "smooth" });
    player.play();
  }
}
