// Maps side by side, or one animated map, on one canvas with one selection. Points are indices of texts from 0 to N - 1.
const NEAR = 9, MARGIN = 14, TITLE = 24, GAP = 10, MIN_WIDTH = 250; // CSS pixels
const MAX_STRETCH = 1.3; // of one axis relative to the other, so that the points fill the frame
const OTHERS = 475; // height of what a page of 1440 pixels shows above and below the map
// Places of a label around its region, to the right in widths of the label and down in lines.
const LABEL_PLACES = [0, -1, 1, -2, 2, -3, 3, -4, 4].flatMap((down) => [0, -1, 1].map((right) => [right, down]));
const views = new WeakMap(); // root -> zoom, tool and frame, which survive a rerun of the page

function viewOf(root, data) {
  const previous = views.get(root);
  if (previous?.id === data.id) {
    previous.time = clamp(previous.time, 0, data.frames.length - 1);
    return previous;
  }
  const frames = data.frames.map((frame) => new Uint16Array(bytesOf(frame).buffer));
  const [x, y] = data.size.map((side) => side / 2);
  const view = { id: data.id, frames, x, y, span: 1, tool: previous?.tool ?? "lasso", time: data.start, buffers: [] };
  views.set(root, view);
  return view;
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".map");
  const N = data.count, view = viewOf(root, data), lastFrame = data.frames.length - 1;
  const isSelected = unpackBits(data.selected, N);
  const points = Uint32Array.from({ length: N }, (_, point) => point);
  const selected = points.filter((point) => isSelected[point]), others = points.filter((point) => !isSelected[point]);
  const marks = data.categories.map(([, color, symbol]) => ({ rgb: rgbOf(color), isDiamond: symbol === "diamond" }));
  const isMuted = data.categories.map((category) => category[3]);
  const colorings = data.values.map(bytesOf).map((categories) => ({
    categories,
    muted: others.filter((point) => isMuted[categories[point]]),
    unmuted: others.filter((point) => !isMuted[categories[point]]),
  }));
  const coloringOf = (panel) => colorings[colorings.length > 1 ? Math.round(panel.time) : 0];
  const categoryOf = (panel, point) => data.categories[coloringOf(panel).categories[point]];
  let drag = null, hovered = -1, isWaiting = false, panels = [];

  const { bar, canvas, legend, tip } = canvasFrame(root, data.label);
  const tools = {
    lasso: barButton(bar, "Lasso", "Draw a lasso to select texts", () => selectTool("lasso")),
    move: barButton(bar, "Move", "Drag to move the map", () => selectTool("move")),
  };
  barButton(bar, "+", "Zoom in", () => zoom(0.6));
  barButton(bar, "−", "Zoom out", () => zoom(1 / 0.6));
  barButton(bar, "Reset", "Show the whole map", () => zoom(Infinity));
  const counted = (count) => count.toLocaleString("en");
  if (data.moving && lastFrame) bar.append(frameSlider(root, view, data.names, { draw, drawLater }));
  if (selected.length) bar.append(element("span", {}, `${counted(selected.length)} of ${counted(N)} texts selected`));
  for (const [name, color, symbol] of data.categories) legendEntry(legend, color, name, symbol);
  if (data.pairs.length) legendEntry(legend, "currentColor", data.pairs_name);
  if (data.moving && data.trails.length) legendEntry(legend, "currentColor", "path of a listed text, in its color", "line");

  function selectTool(name) {
    view.tool = name;
    for (const [tool, button] of Object.entries(tools)) button.setAttribute("aria-pressed", tool === name);
    canvas.style.cursor = name === "lasso" ? "crosshair" : "grab";
  }

  // Computes the positions of all points in CSS pixels, interpolated between frames.
  function placePoints(panel) {
    const { xs, ys, scale: [scaleX, scaleY] } = panel, low = Math.floor(panel.time), share = panel.time - low;
    const from = view.frames[low], to = view.frames[Math.min(lastFrame, low + 1)];
    const left = panel.center[0] - view.x * scaleX, top = panel.center[1] - view.y * scaleY;
    for (let point = 0, x = 0; point < N; point++, x += 2) {
      xs[point] = left + scaleX * (share ? from[x] + (to[x] - from[x]) * share : from[x]);
      ys[point] = top + scaleY * (share ? from[x + 1] + (to[x + 1] - from[x + 1]) * share : from[x + 1]);
    }
  }

  // Arranges the panels in rows and returns the height of the canvas.
  function layOut(canvasWidth) {
    const count = data.moving ? 1 : data.frames.length;
    const columns = clamp(Math.floor((canvasWidth + GAP) / (MIN_WIDTH + GAP)), 1, count), rows = Math.ceil(count / columns);
    const available = (canvasWidth - GAP * (columns - 1)) / columns, most = clamp(window.innerHeight - OTHERS, 400, 560);
    const height = clamp(available * 0.8, 260, most);
    const fits = [(available - 2 * MARGIN) / data.size[0], (height - 2 * MARGIN) / data.size[1]];
    const whole = fits.map((fit) => Math.min(fit, Math.min(...fits) * MAX_STRETCH)), scale = whole.map((fit) => fit / view.span);
    panels = Array.from({ length: count }, (_, number) => {
      const left = (number % columns) * (available + GAP);
      const top = Math.floor(number / columns) * (height + TITLE + GAP) + TITLE;
      const buffers = (view.buffers[number] ??= { xs: new Float32Array(N), ys: new Float32Array(N) });
      const time = data.moving ? view.time : number, center = [left + available / 2, top + height / 2];
      return { ...buffers, left, top, width: available, height, time, center, scale, number };
    });
    return rows * (height + TITLE) + (rows - 1) * GAP;
  }

  function draw() {
    isWaiting = false;
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    if (!root.clientWidth) return;
    const start = performance.now(), height = layOut(root.clientWidth);
    const size = { width: Math.round(root.clientWidth * ratio), height: Math.round(height * ratio) };
    canvas.style.height = `${height}px`;
    if (canvas.width !== size.width || canvas.height !== size.height) Object.assign(canvas, size);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const style = getComputedStyle(root), background = shownPixel(style.getPropertyValue("--st-background-color") || "#fff");
    const isReusable = view.image?.width === canvas.width && view.image.height === canvas.height;
    const image = (view.image = isReusable ? view.image : context.createImageData(canvas.width, canvas.height));
    new Uint32Array(image.data.buffer).fill(new Uint32Array(background.buffer)[0]);
    const pixels = new Uint8Array(image.data.buffer), hasSelection = selected.length > 0;
    const radius = ratio * clamp(1.75 * (5000 / N) ** 0.2, 1.3, 2.6) * Math.min(2.2, view.span ** -0.35);
    const opacity = clamp((3000 / N) ** 0.4, 0.35, 1); // dense regions of large maps are darker
    for (const panel of panels) {
      placePoints(panel);
      const { xs, ys, left, top } = panel, { categories, muted, unmuted } = coloringOf(panel);
      const box = [left, top, left + panel.width, top + panel.height].map((edge) => Math.round(edge * ratio));
      const paint = (indices, size, opacity) =>
        blend(pixels, canvas.width, { points: indices, xs, ys, ratio, categories, marks, radius: size, opacity, box });
      paint(muted, radius, hasSelection ? 0.16 : 0.4 * opacity);
      paint(unmuted, radius, hasSelection ? 0.22 : opacity);
      paint(selected, radius * 1.5, 0.95);
    }
    context.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const panel of panels) drawOverlay(context, panel, style);
    context.setTransform(1, 0, 0, 1, 0, 0);
    canvas.dataset.moment = view.time.toFixed(2);
    canvas.dataset.scale = panels.map((panel) => panel.scale.join(" ")); // for tests
    canvas.dataset.milliseconds = (performance.now() - start).toFixed(1);
  }

  function drawLater() {
    if (!isWaiting) requestAnimationFrame(draw);
    isWaiting = true;
  }

  // Draws title, border, trails, the hovered text and the lasso of a panel.
  function drawOverlay(context, panel, style) {
    const { left, top, width, height } = panel, textColor = style.getPropertyValue("--st-text-color") || "#222";
    context.font = `600 13px ${style.getPropertyValue("--st-font") || "sans-serif"}`;
    context.fillStyle = textColor;
    context.textBaseline = "middle";
    context.fillText(data.names[Math.round(panel.time)], left, top - TITLE / 2 - 1, width);
    context.save();
    context.strokeStyle = "rgba(138,143,152,0.45)";
    context.strokeRect(left + 0.5, top + 0.5, width - 1, height - 1);
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    if (data.moving && panel.time > 0) for (const point of data.trails) drawTrail(context, panel, point);
    drawContours(context, panel, textColor);
    drawPairs(context, panel, textColor);
    drawLabels(context, panel, textColor, style);
    context.strokeStyle = textColor;
    if (hovered >= 0) {
      context.lineWidth = 2;
      context.beginPath();
      context.arc(panel.xs[hovered], panel.ys[hovered], 7, 0, 7);
      context.stroke();
    }
    if (drag?.lasso && drag.panel === panel.number) {
      context.setLineDash([4, 3]);
      context.fillStyle = "rgba(0,114,178,0.12)";
      context.fill(shapeOf(drag.lasso));
      context.stroke(shapeOf(drag.lasso));
    }
    context.restore();
  }

  // The number of the frame that a panel shows; -1 between two frames, which have no contours and labels.
  const frameOf = ({ time }) => (Math.abs(time - Math.round(time)) < 0.02 ? Math.round(time) : -1);

  function drawContours(context, panel, color) {
    const levels = data.contours[frameOf(panel)] ?? [], { scale, center } = panel;
    const place = (x, y) => [center[0] + (x - view.x) * scale[0], center[1] + (y - view.y) * scale[1]];
    context.strokeStyle = color;
    context.lineWidth = 1;
    context.globalAlpha = 0.75;
    levels.forEach((segments) => {
      context.beginPath();
      for (const [x, y, endX, endY] of segments) context.moveTo(...place(x, y)), context.lineTo(...place(endX, endY));
      context.stroke();
    });
    context.globalAlpha = 1;
  }

  function drawPairs(context, { xs, ys }, color) {
    context.strokeStyle = context.fillStyle = color;
    context.lineWidth = 1.6;
    for (const pair of data.pairs) {
      context.beginPath();
      context.moveTo(xs[pair[0]], ys[pair[0]]);
      context.lineTo(xs[pair[1]], ys[pair[1]]);
      context.stroke();
      for (const point of pair) {
        context.beginPath();
        context.arc(xs[point], ys[point], 3, 0, 7);
        context.fill();
      }
    }
  }

  // Draws each label near its region where it covers the fewest points, with a line to the region if it is not there.
  // Labels for which there is no place without another label, its line, or the line of a pair are left out.
  function drawLabels(context, panel, color, style) {
    const { scale, center, left, top, width, height } = panel, boxes = [], labels = data.labels[frameOf(panel)] ?? [];
    const lines = data.pairs.map(([from, to]) => [panel.xs[from], panel.ys[from], panel.xs[to], panel.ys[to]]);
    const covered = labels.length ? pointCounts(panel) : null;
    context.textAlign = "center";
    context.lineJoin = "round";
    context.fillStyle = color;
    for (const [x, y, text] of labels) {
      const half = context.measureText(text).width / 2 + 4;
      const column = center[0] + (x - view.x) * scale[0], row = center[1] + (y - view.y) * scale[1];
      if (column < left || column > left + width || row < top || row > top + height) continue;
      let best = null;
      for (const [right, down] of LABEL_PLACES) {
        const middle = clamp(column + right * (half + 10), left + half, left + width - half);
        const line = clamp(row + down * 22, top + 10, top + height - 10);
        if (boxes.some((box) => Math.abs(box.line - line) < 18 && Math.abs(box.middle - middle) < box.half + half)) continue;
        const leader = [column, row, clamp(column, middle - half, middle + half), clamp(row, line - 9, line + 9)];
        const box = { middle, line, half };
        if (lines.some((one) => crosses(one, box)) || boxes.some((other) => crosses(leader, other))) continue;
        const cost = covered(middle - half, line - 8, middle + half, line + 8) + Math.hypot(middle - column, line - row) / 8;
        if (!best || cost < best.cost) best = { ...box, leader, cost };
      }
      if (!best) continue;
      boxes.push(best);
      const { middle, line, leader } = best;
      if (Math.hypot(column - leader[2], row - leader[3]) > 6) {
        lines.push(leader);
        context.lineWidth = 1;
        context.strokeStyle = color;
        context.beginPath();
        context.moveTo(column, row);
        context.lineTo(...leader.slice(2));
        context.stroke();
      }
      context.lineWidth = 4;
      context.strokeStyle = style.getPropertyValue("--st-background-color") || "#fff";
      context.strokeText(text, middle, line);
      context.fillText(text, middle, line);
    }
    context.textAlign = "start";
  }

  // Returns whether a line [x, y, end x, end y] is in the box of a label, with an accuracy of 2 pixels.
  function crosses([x, y, endX, endY], { middle, line, half }) {
    const steps = Math.ceil(Math.hypot(endX - x, endY - y) / 2) || 1;
    return Array.from({ length: steps + 1 }, (_, step) => step / steps).some((share) =>
      Math.abs(x + (endX - x) * share - middle) < half && Math.abs(y + (endY - y) * share - line) < 10);
  }

  // Returns a function that counts the points of a panel in a box, with an accuracy of 8 pixels.
  function pointCounts({ xs, ys, left, top, width, height }) {
    const columns = Math.ceil(width / 8), rows = Math.ceil(height / 8), counts = new Uint32Array(columns * rows);
    for (let point = 0; point < N; point++) {
      const column = Math.floor((xs[point] - left) / 8), row = Math.floor((ys[point] - top) / 8);
      if (column >= 0 && column < columns && row >= 0 && row < rows) counts[row * columns + column]++;
    }
    return (x, y, endX, endY) => {
      let sum = 0;
      for (let row = Math.max(0, Math.floor((y - top) / 8)); row <= Math.min(rows - 1, (endY - top) / 8); row++)
        for (let column = Math.max(0, Math.floor((x - left) / 8)); column <= Math.min(columns - 1, (endX - left) / 8); column++)
          sum += counts[row * columns + column];
      return sum;
    };
  }

  function drawTrail(context, panel, point) {
    const { scale, center } = panel;
    context.strokeStyle = categoryOf(panel, point)[1];
    context.lineWidth = 1.4;
    context.globalAlpha = 0.7;
    context.beginPath();
    for (const frame of view.frames.slice(0, Math.floor(panel.time) + 1))
      context.lineTo(
        center[0] + (frame[2 * point] - view.x) * scale[0], center[1] + (frame[2 * point + 1] - view.y) * scale[1]);
    context.lineTo(panel.xs[point], panel.ys[point]);
    context.stroke();
    context.globalAlpha = 1;
  }

  const shapeOf = (lasso) => new Path2D(`M${lasso.join(" ")}Z`); // lasso: [x, y, x, y, ...]

  function zoom(factor, x = view.x, y = view.y) {
    const span = clamp(view.span * factor, 0.005, 1), share = span / view.span;
    if (span === 1) [view.x, view.y] = [data.size[0] / 2, data.size[1] / 2];
    else [view.x, view.y] = [x + (view.x - x) * share, y + (view.y - y) * share];
    view.span = span;
    drawLater();
  }

  function pointer(event) {
    const [x, y] = pointerPosition(canvas, event);
    const contains = ({ left, top, width, height }) => x >= left && x < left + width && y >= top && y < top + height;
    return { x, y, panel: panels.find(contains) };
  }

  function nearestPoint({ x, y, panel }) {
    let nearest = -1, least = NEAR * NEAR;
    for (let point = 0; panel && point < N; point++) {
      const distance = (panel.xs[point] - x) ** 2 + (panel.ys[point] - y) ** 2;
      if (distance < least) [least, nearest] = [distance, point];
    }
    return nearest;
  }

  function hover(point, { x, y, panel } = {}) {
    if (point !== hovered) drawLater();
    hovered = point;
    if (point < 0) tip.style.visibility = "hidden";
    else showTip(tip, canvas, x, y, element("b", {}, categoryOf(panel, point)[0]), element("div", {}, data.texts.getChild("text").get(point)));
  }

  canvas.onpointerdown = (event) => {
    const { x, y, panel } = pointer(event);
    if (!panel) return;
    const isMove = view.tool === "move" || event.button === 1 || event.altKey;
    drag = { x, y, start: [view.x, view.y], panel: panel.number, lasso: isMove ? null : [x, y], moved: false };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    const position = pointer(event), { x, y } = position;
    if (!drag) return hover(nearestPoint(position), position);
    if (Math.hypot(x - drag.x, y - drag.y) > 4) drag.moved = true;
    if (!drag.moved) return;
    hover(-1);
    if (drag.lasso) {
      const [lastX, lastY] = drag.lasso.slice(-2);
      if (Math.hypot(x - lastX, y - lastY) > 2.5) drag.lasso.push(x, y);
    } else {
      const { scale } = panels[drag.panel];
      [view.x, view.y] = [drag.start[0] - (x - drag.x) / scale[0], drag.start[1] - (y - drag.y) / scale[1]];
    }
    drawLater();
  };
  canvas.onpointerup = (event) => {
    if (!drag) return;
    const { moved, lasso, panel } = drag, selection = event.shiftKey ? isSelected.slice() : new Uint8Array(N);
    drag = null;
    if (moved && lasso) {
      const context = canvas.getContext("2d"), shape = shapeOf(lasso), { xs, ys } = panels[panel];
      for (const point of points) if (context.isPointInPath(shape, xs[point], ys[point], "evenodd")) selection[point] = 1;
    }
    const clicked = moved ? -1 : nearestPoint(pointer(event));
    if (clicked >= 0) selection[clicked] = 1;
    if (selection.some(Boolean)) setTriggerValue("selected", { id: data.id, mask: packBits(selection) });
    drawLater();
  };
  canvas.onpointerleave = () => hover(-1);
  canvas.addEventListener("wheel", (event) => {
    const { x, y, panel } = pointer(event);
    if (!panel || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const { center, scale } = panel;
    zoom(Math.exp(event.deltaY / 300), view.x + (x - center[0]) / scale[0], view.y + (y - center[1]) / scale[1]);
  }, { passive: false });
  canvas.onkeydown = (event) => {
    const step = ARROWS[event.key];
    if (event.key === "+") zoom(0.6);
    else if (event.key === "-") zoom(1 / 0.6);
    else if (step) {
      view.y += step[0] * 0.1 * view.span * data.size[1];
      view.x += step[1] * 0.1 * view.span * data.size[0];
      drawLater();
    } else return;
    event.preventDefault();
  };

  selectTool(view.tool);
  const resized = new ResizeObserver(drawLater), themed = new MutationObserver(drawLater);
  resized.observe(root);
  themed.observe(document.documentElement, { attributes: true, subtree: false });
  draw();
  return () => {
    resized.disconnect();
    themed.disconnect();
    view.playing = false;
  };
}
