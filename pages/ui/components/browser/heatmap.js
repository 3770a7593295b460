// Matrix of a batch: one cell is one pixel of an image that is scaled to the view. Marks, borders and the pinned cell are
// drawn over it.
const MIN_MARK_CELL = 4; // CSS pixels of a cell from which its mark is a shape instead of a filled cell
const NARROW = 900, TOUCH_CELL = 24; // CSS pixels: a window whose view is zoomed in, and the least side of its cells
const OUTLINE = "#1B2530", STEPS = [1, 2, 5, 10, 20, 50, 100, 200]; // between two numbers of an axis
const LEFT = 46, BOTTOM = 42, TICKS = 10; // CSS pixels of the axes, and the most numbers on one
const views = new WeakMap(); // root -> zoom, pinned cell and that of the arrow keys, which survive a rerun of the page

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".batch");
  const size = data.size, cosines = bytesOf(data.cosines), kinds = bytesOf(data.kinds);
  const marks = data.names.map((name) => data.marks[name]); // [color, shape], if the kind has a mark
  const paths = marks.map((mark) => mark && new Path2D(SHAPES[mark[1]]));
  const previous = views.get(root);
  const view = previous?.cosines === data.cosines ? previous : { x: 0, y: 0, span: size, cosines: data.cosines };
  const isMoved = String(view.pinned) !== String(data.pinned);
  view.pinned = data.pinned;
  views.set(root, view);
  if (isMoved || !view.focused) view.focused = data.pinned ?? [0, 0];
  let hovered = null, drag = null, side = 0; // side: of the matrix

  const { bar, canvas, legend, tip } = canvasFrame(root, data.label);
  barButton(bar, "+", data.pinned ? "Zoom in on the pinned pair" : "Zoom in", () => zoom(0.5));
  barButton(bar, "−", "Zoom out", () => zoom(2));
  barButton(bar, "Reset", "Show the whole batch", () => zoom(size));
  const status = bar.appendChild(element("span"));
  const stops = data.ramp.filter((_, index) => index % 15 === 0).map((color) => `rgb(${color})`);
  const ramp = element("i", { class: "ramp" });
  ramp.style.background = `linear-gradient(90deg, ${stops})`;
  legend.append(element("span", {}, "−1", ramp, "1 cosine"));
  const present = new Set(kinds);
  data.names.forEach((name, kind) => marks[kind] && present.has(kind) && legendEntry(legend, marks[kind][0], name, marks[kind][1]));
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
    side = width - LEFT;
    if (window.innerWidth <= NARROW && view.width !== width) {
      view.width = width;
      zoom(Math.floor(side / TOUCH_CELL) / view.span);
    }
    canvas.style.height = `${side + BOTTOM}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round((side + BOTTOM) * ratio);
    canvas.dataset.plot = [LEFT, side, view.x, view.y, view.span]; // for tests
    const context = canvas.getContext("2d"), pixels = side * ratio, cell = pixels / view.span;
    drawAxes(context, ratio);
    context.setTransform(1, 0, 0, 1, LEFT * ratio, 0);
    context.beginPath();
    context.rect(0, 0, pixels, pixels);
    context.clip();
    context.imageSmoothingEnabled = false;
    context.drawImage(image, view.x, view.y, view.span, view.span, 0, 0, pixels, pixels);
    context.strokeStyle = OUTLINE;
    const end = (start) => Math.min(size, Math.ceil(start + view.span));
    for (let row = Math.floor(view.y); row < end(view.y); row++)
      for (let column = Math.floor(view.x); column < end(view.x); column++) {
        const kind = kinds[row * size + column];
        if (!marks[kind]) continue;
        context.fillStyle = marks[kind][0];
        const x = (column - view.x) * cell, y = (row - view.y) * cell;
        if (cell < MIN_MARK_CELL * ratio) context.fillRect(x, y, Math.max(1, cell), Math.max(1, cell));
        else {
          const radius = Math.min(cell * 0.32, 5 * ratio);
          context.save();
          context.translate(x + cell / 2, y + cell / 2);
          context.scale(radius, radius);
          context.lineWidth = ratio / radius;
          context.fill(paths[kind]);
          context.stroke(paths[kind]); // so that the mark can be seen on every color of a cell
          context.restore();
        }
      }
    const box = ([row, column], span, color, lineWidth, grow = 0) => {
      context.strokeStyle = color;
      context.lineWidth = lineWidth * ratio;
      const side = (span + 2 * grow) * cell;
      context.strokeRect((column - grow - view.x) * cell, (row - grow - view.y) * cell, side, side);
    };
    for (const [start, stop] of data.borders) box([start, start], stop - start, OUTLINE, cell < 3 * ratio ? 0.6 : 1.2);
    if (hovered) box(hovered, 1, OUTLINE, 1);
    const grow = Math.max(0, (8 * ratio - cell) / 2 / cell); // the pinned cell is visible at any zoom
    if (view.pinned) {
      box(view.pinned, 1, "#FFFFFF", 4.5, grow);
      box(view.pinned, 1, getComputedStyle(root).getPropertyValue("--negative"), 2.5, grow);
    }
    status.textContent = view.span < size ? `pairs ${Math.floor(view.y) + 1} to ${end(view.y)} of ${size}` : `${size} pairs`;
  }

  // Numbers and names of the axes, left of the matrix and below it.
  function drawAxes(context, ratio) {
    const style = getComputedStyle(root), cell = side / view.span;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = `12px ${style.getPropertyValue("--st-font")}`;
    context.fillStyle = style.getPropertyValue("--st-text-color");
    context.globalAlpha = 0.75;
    const step = STEPS.find((one) => view.span / one <= TICKS) ?? size;
    context.textAlign = "center";
    context.fillText("documents, in the same order", LEFT + side / 2, side + BOTTOM - 6);
    for (let pair = step; pair <= size; pair += step) {
      const [x, y] = [view.x, view.y].map((start) => (pair - 0.5 - start) * cell);
      if (x > 0 && x < side) context.fillText(pair, LEFT + x, side + 16);
      context.textAlign = "right";
      if (y > 0 && y < side) context.fillText(pair, LEFT - 6, y + 4);
      context.textAlign = "center";
    }
    context.rotate(-Math.PI / 2);
    context.fillText("queries", -side / 2, 11);
    context.globalAlpha = 1;
  }

  function moveTo(x, y) {
    view.x = clamp(x, 0, size - view.span);
    view.y = clamp(y, 0, size - view.span);
  }

  function zoom(factor, [row, column] = view.pinned ?? [0, 1].map(() => (size - 1) / 2)) {
    view.span = clamp(view.span * factor, Math.min(8, size), size);
    moveTo(column + 0.5 - view.span / 2, row + 0.5 - view.span / 2);
    draw();
  }

  function cellAt(event) {
    const [x, y] = pointerPosition(canvas, event), cellsPerPixel = view.span / side;
    const index = (offset, start) => clamp(Math.floor(start + offset * cellsPerPixel), 0, size - 1);
    return [index(y, view.y), index(x - LEFT, view.x)];
  }

  const cosine = (cell) => number(cosines[cell] / 127.5 - 1, 2);

  function showCell([row, column], x, y) {
    const cell = row * size + column;
    const line = (name, value) => element("div", {}, element("b", {}, `${name} `), value);
    showTip(tip, canvas, x, y,
      line("cosine", cosine(cell)), line(`cosine of ${data.positive[row] ? "the positive" : "its own document"}`, cosine(row * size + row)),
      line("query", data.queries[row]), line("document", data.documents[column]), line("kind", data.names[kinds[cell]]));
  }

  function pin(cell) {
    view.pinned = view.focused = cell;
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
      const cellsPerPixel = view.span / side;
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
    if (event.key === "Enter") pin(view.focused);
    else if (event.key === "+") zoom(0.5, view.focused);
    else if (event.key === "-") zoom(2, view.focused);
    else if (step) {
      const [row, column] = (view.focused = hovered = view.focused.map((index, axis) => clamp(index + step[axis], 0, size - 1)));
      const isVisible = (index, start) => index >= start && index < start + view.span;
      if (!isVisible(row, view.y) || !isVisible(column, view.x)) zoom(1, view.focused);
      const pixelsPerCell = side / view.span;
      showCell(view.focused, LEFT + (column - view.x) * pixelsPerCell, (row - view.y) * pixelsPerCell);
      draw();
    } else return;
    event.preventDefault();
  };

  const observer = new ResizeObserver(draw);
  observer.observe(root);
  draw();
  return () => observer.disconnect();
}
