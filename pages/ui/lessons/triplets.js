// Triplets on a circle for each distance: the margin decides which of them have a gradient.

const CIRCLE_SIZE = 320, CIRCLE_RADIUS = 118, LABEL_DISTANCE = 21, LABEL_DEGREES = 11; // smallest angle between two numbers

// The triplets of one distance. near, far: distances of each query from its document and from its negative.
class Circle {
  constructor({ name, near, far }, { queries, documents, negatives }) {
    Object.assign(this, { name, near, far });
    const place = ([x, y]) => [CIRCLE_SIZE / 2 + x * CIRCLE_RADIUS, CIRCLE_SIZE / 2 - y * CIRCLE_RADIUS];
    const line = (kind, from, to) => {
      const [[x1, y1], [x2, y2]] = [place(from), place(to)];
      return svg("line", { class: kind, x1, y1, x2, y2 });
    };
    const dots = (kind, points) => points.map((point, i) => {
      const [cx, cy] = place(point);
      return svg("circle", { class: kind, cx, cy, r: 6 }, svg("title", {}, `${kind} ${i + 1}`));
    });
    const numbers = (points, distance) => spread(points.map(([x, y]) => Math.atan2(y, x))).map((angle, i) => {
      const [x, y] = [Math.cos(angle), Math.sin(angle)].map((value) => value * (1 + distance / CIRCLE_RADIUS));
      const [left, top] = place([x, y]);
      return svg("text", { x: left, y: top + 6 }, i + 1);
    });
    this.triplets = queries.map((query, i) => svg("g", { class: "triplet" },
      line("far", query, documents[negatives[i]]), line("near", query, documents[i])));
    this.queries = dots("query", queries);
    this.fact = element("p", { class: "fact", "aria-live": "polite" });
    this.picture = svg("svg", { viewBox: `0 0 ${CIRCLE_SIZE} ${CIRCLE_SIZE}`, role: "img" },
      svg("circle", { class: "circle", cx: CIRCLE_SIZE / 2, cy: CIRCLE_SIZE / 2, r: CIRCLE_RADIUS }),
      ...this.triplets, ...dots("document", documents), ...this.queries,
      ...numbers(queries, -LABEL_DISTANCE), ...numbers(documents, LABEL_DISTANCE));
    this.root = element("figure", {}, element("figcaption", {}, name), this.picture, this.fact);
  }

  show(margin) {
    const terms = this.near.map((near, i) => near - this.far[i] + margin), active = terms.map((term) => term > 0);
    for (const parts of [this.triplets, this.queries]) parts.forEach((part, i) => part.classList.toggle("active", active[i]));
    const count = active.filter(Boolean).length, loss = terms.reduce((sum, term) => sum + Math.max(0, term), 0) / terms.length;
    this.fact.textContent = `${count} of ${terms.length} triplets violate the margin; loss ${number(loss)}`;
    this.picture.setAttribute("aria-label", `${this.name}, margin ${margin}: ${this.fact.textContent}.`);
    Object.assign(this.root.dataset, { count, loss });
  }
}

// Moves angles apart, in their order, until the numbers at them do not overlap.
function spread(angles) {
  const least = (LABEL_DEGREES * Math.PI) / 180, order = angles.map((_, i) => i).sort((a, b) => angles[a] - angles[b]);
  const moved = [...angles];
  for (let round = 0; round < angles.length; round++) {
    order.forEach((low, place) => {
      const high = order[(place + 1) % order.length], turn = place + 1 === order.length ? 2 * Math.PI : 0;
      const missing = Math.max(0, least - (moved[high] + turn - moved[low]));
      moved[low] -= missing / 2;
      moved[high] += missing / 2;
    });
  }
  return moved;
}

class Triplets {
  constructor(root, component) {
    const { margins, value, distances, points, locked } = component.data;
    const circles = distances.map((distance) => new Circle(distance, points));
    const output = element("output");
    const show = (margin) => {
      output.textContent = margin;
      slider.setAttribute("aria-valuetext", margin);
      for (const circle of circles) circle.show(margin);
    };
    const slider = sliderInput({ min: 0, max: margins.length - 1, value: margins.indexOf(value), "aria-label": "Margin" },
      (index, isDone) => {
        show(margins[index]);
        if (isDone) this.component.setStateValue("margin", margins[index]);
      });
    slider.disabled = locked;
    const entries = { query: "query (number inside)", document: "document (number outside)", near: "query to its document", far: "query to its negative" };
    root.replaceChildren(element("label", { class: "bar" }, "Margin", slider, output),
      element("div", { class: "circles" }, ...circles.map((circle) => circle.root)),
      element("p", { class: "legend" }, ...Object.entries(entries).map(([kind, text]) =>
        element("span", {}, element("i", { class: kind }), text)), "Same number: one pair. Lines, and rings around the queries: triplets that violate the margin."));
    show(value);
  }
}

const shown = new WeakMap();

export default function (component) {
  const root = component.parentElement.querySelector(".triplets"), { id } = component.data;
  if (shown.get(root)?.id !== id) shown.set(root, { id, triplets: new Triplets(root, component) });
  shown.get(root).triplets.component = component;
}
