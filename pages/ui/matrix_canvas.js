// One cell is one pixel of an image that is scaled to the view; marks, borders and the pinned cell are drawn over it.
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const SMALLEST_MARK = 4; // pixels of a cell from which its mark is a dot, not the whole cell
const views = new WeakMap(); // what a visitor has zoomed to and pinned, kept while the page is drawn again

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".batch");
  const size = data.size, cosines = bytes(data.cosines), kinds = bytes(data.kinds);
  const colours = data.names.map((name) => data.marks[name]);
  const kept = views.get(root);
  const view = kept && kept.cosines === data.cosines ? kept : { x: 0, y: 0, span: size, cosines: data.cosines };
  view.picked = data.picked;
  views.set(root, view);
  let at = [...data.picked], hovered = null, drag = null;

  root.replaceChildren();
  const make = (tag, name, parent = root) => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    return parent.appendChild(made);
  };
  const bar = make("div", "bar");
  const canvas = make("canvas");
  const legend = make("div", "legend");
  const tip = make("div", "tip");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", data.label);
  const image = imageOf();

  function imageOf() {
    const made = document.createElement("canvas");
    made.width = made.height = size;
    const context = made.getContext("2d"), pixels = context.createImageData(size, size);
    for (let cell = 0; cell < size * size; cell++) {
      pixels.data.set(data.ramp[cosines[cell]], 4 * cell);
      pixels.data[4 * cell + 3] = 255;
    }
    context.putImageData(pixels, 0, 0);
    return made;
  }

  function draw() {
    const width = root.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    canvas.style.height = `${width}px`;
    canvas.width = canvas.height = Math.round(width * ratio);
    const context = canvas.getContext("2d"), cell = canvas.width / view.span;
    context.imageSmoothingEnabled = false;
    context.drawImage(image, view.x, view.y, view.span, view.span, 0, 0, canvas.width, canvas.width);
    const last = (start) => Math.min(size, Math.ceil(start + view.span));
    for (let row = Math.floor(view.y); row < last(view.y); row++)
      for (let column = Math.floor(view.x); column < last(view.x); column++) {
        const colour = colours[kinds[row * size + column]];
        if (!colour) continue;
        context.fillStyle = colour;
        const x = (column - view.x) * cell, y = (row - view.y) * cell;
        if (cell < SMALLEST_MARK * ratio) context.fillRect(x, y, Math.max(1, cell), Math.max(1, cell));
        else {
          context.beginPath();
          context.arc(x + cell / 2, y + cell / 2, Math.min(cell * 0.32, 5 * ratio), 0, 7);
          context.fill();
        }
      }
    const box = (x, y, span, colour, line) => {
      context.strokeStyle = colour;
      context.lineWidth = line * ratio;
      context.strokeRect((x - view.x) * cell, (y - view.y) * cell, span * cell, span * cell);
    };
    for (const [start, end] of data.borders) box(start, start, end - start, "#1B2530", cell < 3 * ratio ? 0.6 : 1.2);
    if (hovered) box(hovered[1], hovered[0], 1, "#1B2530", 1);
    const grown = cell < 8 * ratio ? (8 * ratio - cell) / 2 / cell : 0; // the pinned cell is found at any zoom
    box(view.picked[1] - grown, view.picked[0] - grown, 1 + 2 * grown, "#FFFFFF", 4.5);
    box(view.picked[1] - grown, view.picked[0] - grown, 1 + 2 * grown, "#D55E00", 2.5);
    shown.textContent = view.span < size ? `pairs ${Math.floor(view.y) + 1} to ${last(view.y)} of ${size}` : `${size} pairs`;
  }

  function zoom(factor, row = view.picked[0] + 0.5, column = view.picked[1] + 0.5) {
    view.span = clamp(view.span * factor, Math.min(8, size), size);
    view.x = clamp(column - view.span / 2, 0, size - view.span);
    view.y = clamp(row - view.span / 2, 0, size - view.span);
    draw();
  }

  function cellOf(event) {
    const frame = canvas.getBoundingClientRect(), share = view.span / frame.width;
    const place = (offset, start) => clamp(Math.floor(start + offset * share), 0, size - 1);
    return [place(event.clientY - frame.top, view.y), place(event.clientX - frame.left, view.x)];
  }

  function tell([row, column], x, y) {
    const cell = row * size + column;
    tip.replaceChildren();
    const line = (name, value) => {
      const made = make("div", "", tip);
      make("b", "", made).textContent = `${name} `;
      made.append(value);
    };
    line("cosine", (cosines[cell] / 127.5 - 1).toFixed(2));
    line("query", data.queries[row]);
    line("document", data.documents[column]);
    line("kind", data.names[kinds[cell]]);
    tip.style.visibility = "visible";
    tip.style.left = `${clamp(x + 14, 0, Math.max(0, root.clientWidth - tip.offsetWidth))}px`;
    const below = y + 14 + tip.offsetHeight <= canvas.offsetTop + canvas.offsetHeight;
    tip.style.top = `${below ? y + 14 : y - tip.offsetHeight - 10}px`;
  }

  function pin(cell) {
    view.picked = at = cell;
    draw();
    setTriggerValue("cell", cell);
  }

  canvas.onpointerdown = (event) => {
    drag = { x: event.clientX, y: event.clientY, left: view.x, top: view.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (drag && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4) drag.moved = true;
    if (drag && drag.moved) {
      const share = view.span / canvas.clientWidth;
      view.x = clamp(drag.left - (event.clientX - drag.x) * share, 0, size - view.span);
      view.y = clamp(drag.top - (event.clientY - drag.y) * share, 0, size - view.span);
      tip.style.visibility = "hidden";
    } else {
      hovered = cellOf(event);
      const frame = root.getBoundingClientRect();
      tell(hovered, event.clientX - frame.left, event.clientY - frame.top);
    }
    draw();
  };
  canvas.onpointerup = (event) => {
    if (drag && !drag.moved) pin(cellOf(event));
    drag = null;
  };
  canvas.onpointerleave = () => {
    hovered = null;
    tip.style.visibility = "hidden";
    draw();
  };
  canvas.onblur = canvas.onpointerleave;
  canvas.onkeydown = (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter") pin(at);
    else if (event.key === "+") zoom(0.5, at[0], at[1]);
    else if (event.key === "-") zoom(2, at[0], at[1]);
    else if (step) {
      at = hovered = [clamp(at[0] + step[0], 0, size - 1), clamp(at[1] + step[1], 0, size - 1)];
      const inside = (value, start) => value >= start && value < start + view.span;
      if (!inside(at[0], view.y) || !inside(at[1], view.x)) zoom(1, at[0], at[1]);
      const share = canvas.clientWidth / view.span;
      tell(at, (at[1] - view.x) * share, canvas.offsetTop + (at[0] - view.y) * share);
      draw();
    } else return;
    event.preventDefault();
  };

  const button = (text, label, act) => {
    const made = make("button", "", bar);
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.onclick = act;
  };
  button("+", "Zoom in on the pinned pair", () => zoom(0.5));
  button("−", "Zoom out", () => zoom(2));
  button("Whole", "Show the whole batch", () => zoom(size));
  const shown = make("span", "", bar);

  const entry = (colour, text) => {
    const made = make("span", "", legend);
    make("i", "", made).style.background = colour;
    made.append(text);
  };
  const scale = make("span", "", legend);
  scale.append("−1");
  const stops = data.ramp.filter((_, place) => place % 15 === 0).map((colour) => `rgb(${colour})`);
  const ramp = make("i", "ramp", scale);
  ramp.style.background = `linear-gradient(90deg, ${stops})`;
  scale.append("1 cosine");
  const present = new Set(kinds);
  data.names.forEach((name, number) => data.marks[name] && present.has(number) && entry(data.marks[name], name));

  const watch = new ResizeObserver(draw);
  watch.observe(root);
  draw();
  return () => watch.disconnect();
}
