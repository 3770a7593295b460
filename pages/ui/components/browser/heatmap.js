// Matrix of a batch: one cell is one pixel of an image that is scaled to the view. Marks, borders and the pinned cell are
// drawn over it.
const MIN_DOT_CELL = 4; // CSS pixels of a cell from which its mark is a dot instead of a filled cell
const NARROW = 900, TOUCH_CELL = 24; // CSS pixels: a window whose view is zoomed in, and the least side of its cells
const views = new WeakMap(); // root -> zoom and pinned cell, which survive a rerun of the page

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".batch");
  const size = data.size, cosines = bytesOf(data.cosines), kinds = bytesOf(data.kinds);
  const colors = data.names.map((name) => data.marks[name]);
  const previous = views.get(root);
  const view = previous?.cosines === data.cosines ? previous : { x: 0, y: 0, span: size, cosines: data.cosines };
  view.pinned = data.pinned;
  views.set(root, view);
  let focused = [...data.pinned], hovered = null, drag = null;

  const { bar, canvas, legend, tip } = canvasFrame(root, data.label);
  barButton(bar, "+", "Zoom in on the pinned pair", () => zoom(0.5));
  barButton(bar, "−", "Zoom out", () => zoom(2));
  barButton(bar, "Reset", "Show the whole batch", () => zoom(size));
  const status = bar.appendChild(element("span"));
  const stops = data.ramp.filter((_, index) => index % 15 === 0).map((color) => `rgb(${color})`);
  const ramp = element("i", { class: "ramp" });
  ramp.style.background = `linear-gradient(90deg, ${stops})`;
  legend.append(element("span", {}, "−1", ramp, "1 cosine"));
  const present = new Set(kinds);
  data.names.forEach((name, kind) => colors[kind] && present.has(kind) && legendEntry(legend, colors[kind], name));
  const image = buildImage();

  function buildImage() {
    const result = element("canvas", { width: size, height: size });
    const context = result.getContext("2d"), pixels = context.createImageData(size, size);
    for (let cell = 0; cell < size * size; cell++) {
      pixels.data.set(data.ramp[cosines[cell]], 4 * cell);
      pixels.data[4 * cell + 3] = 255;
    }
    context.putImageData(pixels, 0, 0);
    return result;
  }

  function draw() {
    const width = root.clientWidth, ratio = window.devicePixelRatio || 1;
    if (!width) return;
    if (window.innerWidth <= NARROW && view.width !== width) {
      view.width = width;
      zoom(Math.floor(width / TOUCH_CELL) / view.span);
    }
    canvas.style.height = `${width}px`;
    canvas.width = canvas.height = Math.round(width * ratio);
    const context = canvas.getContext("2d"), cell = canvas.width / view.span;
    context.imageSmoothingEnabled = false;
    context.drawImage(image, view.x, view.y, view.span, view.span, 0, 0, canvas.width, canvas.width);
    context.strokeStyle = "#1B2530";
    context.lineWidth = ratio;
    const end = (start) => Math.min(size, Math.ceil(start + view.span));
    for (let row = Math.floor(view.y); row < end(view.y); row++)
      for (let column = Math.floor(view.x); column < end(view.x); column++) {
        const color = colors[kinds[row * size + column]];
        if (!color) continue;
        context.fillStyle = color;
        const x = (column - view.x) * cell, y = (row - view.y) * cell;
        if (cell < MIN_DOT_CELL * ratio) context.fillRect(x, y, Math.max(1, cell), Math.max(1, cell));
        else {
          context.beginPath();
          context.arc(x + cell / 2, y + cell / 2, Math.min(cell * 0.32, 5 * ratio), 0, 7);
          context.fill();
          context.stroke(); // so that the dot can be seen on every color of a cell
        }
      }
    const box = ([row, column], span, color, lineWidth, grow = 0) => {
      context.strokeStyle = color;
      context.lineWidth = lineWidth * ratio;
      const side = (span + 2 * grow) * cell;
      context.strokeRect((column - grow - view.x) * cell, (row - grow - view.y) * cell, side, side);
    };
    for (const [start, stop] of data.borders) box([start, start], stop - start, "#1B2530", cell < 3 * ratio ? 0.6 : 1.2);
    if (hovered) box(hovered, 1, "#1B2530", 1);
    const grow = Math.max(0, (8 * ratio - cell) / 2 / cell); // the pinned cell is visible at any zoom
    box(view.pinned, 1, "#FFFFFF", 4.5, grow);
    box(view.pinned, 1, getComputedStyle(root).getPropertyValue("--negative"), 2.5, grow);
    status.textContent = view.span < size ? `pairs ${Math.floor(view.y) + 1} to ${end(view.y)} of ${size}` : `${size} pairs`;
  }

  function moveTo(x, y) {
    view.x = clamp(x, 0, size - view.span);
    view.y = clamp(y, 0, size - view.span);
  }

  function zoom(factor, [row, column] = view.pinned) {
    view.span = clamp(view.span * factor, Math.min(8, size), size);
    moveTo(column + 0.5 - view.span / 2, row + 0.5 - view.span / 2);
    draw();
  }

  function cellAt(event) {
    const [x, y] = pointerPosition(canvas, event), cellsPerPixel = view.span / canvas.clientWidth;
    const index = (offset, start) => clamp(Math.floor(start + offset * cellsPerPixel), 0, size - 1);
    return [index(y, view.y), index(x, view.x)];
  }

  function showCell([row, column], x, y) {
    const cell = row * size + column;
    const line = (name, value) => element("div", {}, element("b", {}, `${name} `), value);
    showTip(tip, canvas, x, y,
      line("cosine", (cosines[cell] / 127.5 - 1).toFixed(2)), line("query", data.queries[row]),
      line("document", data.documents[column]), line("kind", data.names[kinds[cell]]));
  }

  function pin(cell) {
    view.pinned = focused = cell;
    draw();
    setTriggerValue("cell", cell);
  }

  canvas.onpointerdown = (event) => {
    drag = { x: event.clientX, y: event.clientY, left: view.x, top: view.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    if (drag && Math.hypot(event.clientX - drag.x, event.clientY - drag.y) > 4) drag.moved = true;
    if (drag?.moved) {
      const cellsPerPixel = view.span / canvas.clientWidth;
      moveTo(drag.left - (event.clientX - drag.x) * cellsPerPixel, drag.top - (event.clientY - drag.y) * cellsPerPixel);
      tip.style.visibility = "hidden";
    } else {
      hovered = cellAt(event);
      showCell(hovered, ...pointerPosition(canvas, event));
    }
    draw();
  };
  canvas.onpointerup = (event) => {
    if (drag && !drag.moved) pin(cellAt(event));
    drag = null;
  };
  canvas.onblur = canvas.onpointerleave = () => {
    hovered = null;
    tip.style.visibility = "hidden";
    draw();
  };
  canvas.onkeydown = (event) => {
    const step = ARROWS[event.key];
    if (event.key === "Enter") pin(focused);
    else if (event.key === "+") zoom(0.5, focused);
    else if (event.key === "-") zoom(2, focused);
    else if (step) {
      const [row, column] = (focused = hovered = focused.map((index, axis) => clamp(index + step[axis], 0, size - 1)));
      const isVisible = (index, start) => index >= start && index < start + view.span;
      if (!isVisible(row, view.y) || !isVisible(column, view.x)) zoom(1, focused);
      const pixelsPerCell = canvas.clientWidth / view.span;
      showCell(focused, (column - view.x) * pixelsPerCell, (row - view.y) * pixelsPerCell);
      draw();
    } else return;
    event.preventDefault();
  };

  const observer = new ResizeObserver(draw);
  observer.observe(root);
  draw();
  return () => observer.disconnect();
}
