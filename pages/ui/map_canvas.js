// Maps side by side, or one whose points move: all in one frame, one selection. Texts are places 0 to N - 1.
const NEAR = 9, MARGIN = 14, TITLE = 24, GAP = 10, LEAST = 250;

export default function (component) {
  const { data, parentElement, setTriggerValue } = component;
  const root = parentElement.querySelector(".map");
  const N = data.count, view = viewOf(root, data);
  const picked = unpacked(data.picked, N), any = picked.some((bit) => bit);
  const marks = data.categories.map(([, colour, symbol]) => ({ rgb: rgbOf(colour), diamond: symbol === "diamond" }));
  const values = data.values.map(bytesOf);
  const every = Uint32Array.from({ length: N }, (_, point) => point);
  const strong = every.filter((point) => picked[point]), still = every.filter((point) => !picked[point]);
  const quiet = data.categories.map((category) => category[3]), faint = quiet.some((one) => one);
  const layers = values.map((own) => [still.filter((point) => quiet[own[point]]), still.filter((point) => !quiet[own[point]])]);
  const steps = data.frames.length - 1;
  let drag = null, hovered = -1, waiting = false, panels = [];

  root.replaceChildren();
  const make = (tag, name, parent = root, text = "") => {
    const made = document.createElement(tag);
    if (name) made.className = name;
    made.append(text);
    return parent.appendChild(made);
  };
  const bar = make("div", "bar"), canvas = make("canvas");
  if (data.moving && steps) sliderOf(root, make, view, data.names, { draw, later: () => later() });
  const legend = make("div", "legend"), tip = make("div", "tip");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", data.label);

  function button(text, label, act) {
    const made = make("button", "", bar, text);
    made.setAttribute("aria-label", label);
    made.title = label;
    made.onclick = act;
    return made;
  }
  const lasso = button("Lasso", "Draw a lasso to pick texts", () => tool("lasso"));
  const hand = button("Move", "Drag to move the map", () => tool("move"));
  button("+", "Zoom in", () => zoom(0.6));
  button("−", "Zoom out", () => zoom(1 / 0.6));
  button("Whole", "Show the whole map", () => zoom(Infinity));
  button("Picture", "Save the picture as PNG", save);
  const told = make("span", "", bar);
  told.textContent = `${N.toLocaleString("en")} texts${any ? `, ${strong.length.toLocaleString("en")} picked` : ""}`;

  function tool(name) {
    view.tool = name;
    for (const [made, own] of [[lasso, "lasso"], [hand, "move"]]) made.setAttribute("aria-pressed", own === name);
    canvas.style.cursor = name === "lasso" ? "crosshair" : "grab";
  }

  const whose = (panel) => (values.length > 1 ? Math.round(panel.at) : 0); // the colours of a panel

  // where every point stands at a moment between frames, in pixels of a panel
  function places(panel) {
    const { xs, ys } = panel, low = Math.floor(panel.at), share = panel.at - low;
    const one = view.frames[low], two = view.frames[Math.min(steps, low + 1)];
    const scale = panel.scale, left = panel.middle[0] - view.x * scale, top = panel.middle[1] - view.y * scale;
    for (let point = 0, x = 0; point < N; point++, x += 2) {
      xs[point] = left + scale * (share ? one[x] + (two[x] - one[x]) * share : one[x]);
      ys[point] = top + scale * (share ? one[x + 1] + (two[x + 1] - one[x + 1]) * share : one[x + 1]);
    }
  }

  function layOut(width) {
    const shown = data.moving ? 1 : data.frames.length;
    const across = clamp(Math.floor((width + GAP) / (LEAST + GAP)), 1, shown), down = Math.ceil(shown / across);
    const wide = (width - GAP * (across - 1)) / across, high = clamp(wide * 0.8, 260, shown > 1 ? 440 : 500);
    const fit = Math.min((wide - 2 * MARGIN) / data.size[0], (high - 2 * MARGIN) / data.size[1]);
    panels = Array.from({ length: shown }, (_, number) => {
      const left = (number % across) * (wide + GAP), top = Math.floor(number / across) * (high + TITLE + GAP) + TITLE;
      const kept = view.buffers[number] ??= { ...pair(N, ["xs", "ys"]), large: Object.values(pair(N, ["x", "y"])) };
      const at = data.moving ? view.at : number;
      const middle = [left + wide / 2, top + high / 2];
      return { ...kept, left, top, wide, high, at, middle, scale: fit / view.span, number };
    });
    return down * (high + TITLE) + (down - 1) * GAP;
  }

  function draw() {
    waiting = false;
    const width = root.clientWidth, ratio = Math.min(2, window.devicePixelRatio || 1);
    if (!width) return;
    const began = performance.now(), height = layOut(width);
    canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const style = getComputedStyle(root), ground = rgbShown(style.getPropertyValue("--st-background-color") || "#fff");
    const image = view.image?.width === canvas.width && view.image.height === canvas.height
      ? view.image : (view.image = context.createImageData(canvas.width, canvas.height));
    new Uint32Array(image.data.buffer).fill(new Uint32Array(ground.buffer)[0]);
    const pixels = new Uint8Array(image.data.buffer);
    const radius = ratio * clamp(2.2 * (20000 / N) ** 0.25, 1.3, 3.6) * Math.min(2.2, view.span ** -0.35);
    for (const panel of panels) {
      places(panel);
      const { xs, ys, left, top, wide, high } = panel, scaled = ratio === 1 ? [xs, ys] : enlarged(panel, ratio);
      const box = [left, top, left + wide, top + high].map((one) => Math.round(one * ratio));
      const which = whose(panel), own = values[which];
      const paint = (order, size, strength) =>
        blend(pixels, canvas.width, order, scaled[0], scaled[1], own, marks, size, strength, box);
      if (faint) paint(layers[which][0], radius, any ? 0.1 : 0.4);
      paint(faint ? layers[which][1] : still, radius, any ? 0.13 : 0.8);
      if (any) paint(strong, radius * 1.35, 0.8);
    }
    context.putImageData(image, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    for (const panel of panels) over(context, panel, style);
    context.setTransform(1, 0, 0, 1, 0, 0);
    canvas.dataset.moment = view.at.toFixed(2);
    canvas.dataset.milliseconds = (performance.now() - began).toFixed(1);
  }

  // what lies over the points of a panel: its title and frame, trails, the text pointed at, the lasso
  function over(context, panel, style) {
    const { left, top, wide, high, xs, ys } = panel, text = style.getPropertyValue("--st-text-color") || "#222";
    context.font = `600 13px ${style.getPropertyValue("--st-font") || "sans-serif"}`;
    context.fillStyle = text;
    context.textBaseline = "middle";
    const title = data.moving ? data.names[Math.round(panel.at)] : data.names[panel.number];
    context.fillText(title, left, top - TITLE / 2 - 1, wide);
    context.save();
    context.strokeStyle = "rgba(138,143,152,0.45)";
    context.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
    context.beginPath();
    context.rect(left, top, wide, high);
    context.clip();
    if (data.moving && panel.at > 0) for (const point of data.trails) trail(context, panel, point);
    if (hovered >= 0) {
      context.strokeStyle = text;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(xs[hovered], ys[hovered], 7, 0, 7);
      context.stroke();
    }
    if (drag?.path && drag.panel === panel.number) {
      context.strokeStyle = text;
      context.setLineDash([4, 3]);
      context.fillStyle = "rgba(0,114,178,0.12)";
      context.beginPath();
      for (let at = 0; at < drag.path.length; at += 2) context.lineTo(drag.path[at], drag.path[at + 1]);
      context.closePath();
      context.fill();
      context.stroke();
    }
    context.restore();
  }

  function trail(context, panel, point) {
    const { scale, middle } = panel, last = Math.floor(panel.at);
    context.strokeStyle = data.categories[values[whose(panel)][point]][1];
    context.lineWidth = 1.4;
    context.globalAlpha = 0.7;
    context.beginPath();
    for (let frame = 0; frame <= last; frame++) {
      const [x, y] = [view.frames[frame][2 * point], view.frames[frame][2 * point + 1]];
      context.lineTo(middle[0] + (x - view.x) * scale, middle[1] + (y - view.y) * scale);
    }
    context.lineTo(panel.xs[point], panel.ys[point]);
    context.stroke();
    context.globalAlpha = 1;
  }

  const later = () => waiting || ((waiting = true), requestAnimationFrame(draw));

  function zoom(factor, x = view.x, y = view.y) {
    const span = clamp(view.span * factor, 0.005, 1), share = span / view.span;
    if (span === 1) [view.x, view.y] = [data.size[0] / 2, data.size[1] / 2];
    else [view.x, view.y] = [x + (view.x - x) * share, y + (view.y - y) * share];
    view.span = span;
    later();
  }

  function pointed(event) {
    const frame = canvas.getBoundingClientRect(), x = event.clientX - frame.left, y = event.clientY - frame.top;
    const within = ({ left, top, wide, high }) => x >= left && x < left + wide && y >= top && y < top + high;
    return { x, y, panel: panels.find(within) };
  }

  function nearestTo({ x, y, panel }) {
    let best = -1, least = NEAR * NEAR;
    if (panel)
      for (let point = 0; point < N; point++) {
        const away = (panel.xs[point] - x) ** 2 + (panel.ys[point] - y) ** 2;
        if (away < least) [least, best] = [away, point];
      }
    return best;
  }

  function tell(point, x, y, panel) {
    tip.style.visibility = point < 0 ? "hidden" : "visible";
    if (point < 0) return;
    tip.replaceChildren();
    make("b", "", tip, data.categories[values[whose(panel)][point]][0]);
    make("div", "", tip, data.texts.getChild("text").get(point));
    tip.style.left = `${clamp(x + 14, 0, Math.max(0, root.clientWidth - tip.offsetWidth))}px`;
    const below = y + 14 + tip.offsetHeight <= canvas.offsetHeight;
    tip.style.top = `${canvas.offsetTop + (below ? y + 14 : y - tip.offsetHeight - 10)}px`;
  }

  const send = (chosen) => setTriggerValue("picked", { id: data.id, mask: textOf(packed(chosen)) });

  canvas.onpointerdown = (event) => {
    const { x, y, panel } = pointed(event);
    if (!panel) return;
    const moving = view.tool === "move" || event.button === 1 || event.altKey;
    drag = { x, y, from: [view.x, view.y], panel: panel.number, path: moving ? null : [x, y], moved: false };
    canvas.setPointerCapture(event.pointerId);
  };
  canvas.onpointermove = (event) => {
    const at = pointed(event);
    if (!drag) {
      const point = nearestTo(at);
      tell(point, at.x, at.y, at.panel);
      if (point !== hovered) later();
      hovered = point;
      return;
    }
    if (Math.hypot(at.x - drag.x, at.y - drag.y) > 4) drag.moved = true;
    if (!drag.moved) return;
    tell((hovered = -1));
    if (drag.path) {
      const [x, y] = drag.path.slice(-2);
      if (Math.hypot(at.x - x, at.y - y) > 2.5) drag.path.push(at.x, at.y);
    } else {
      const { scale } = panels[drag.panel];
      [view.x, view.y] = [drag.from[0] - (at.x - drag.x) / scale, drag.from[1] - (at.y - drag.y) / scale];
    }
    later();
  };
  canvas.onpointerup = (event) => {
    if (!drag) return;
    const { moved, path, panel } = drag;
    drag = null;
    const chosen = event.shiftKey ? picked.slice() : new Uint8Array(N);
    if (moved && path) inside(path, panels[panel].xs, panels[panel].ys, chosen);
    const point = moved ? -1 : nearestTo(pointed(event));
    if (point >= 0) chosen[point] = 1;
    if (chosen.some((bit) => bit)) send(chosen);
    later();
  };
  canvas.onpointerleave = () => {
    tell((hovered = -1));
    later();
  };
  canvas.addEventListener("wheel", (event) => {
    const { x, y, panel } = pointed(event);
    if (!panel || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const there = [view.x + (x - panel.middle[0]) / panel.scale, view.y + (y - panel.middle[1]) / panel.scale];
    zoom(Math.exp(event.deltaY / 300), ...there);
  }, { passive: false });
  canvas.onkeydown = (event) => {
    const way = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[event.key];
    if (event.key === "+") zoom(0.6);
    else if (event.key === "-") zoom(1 / 0.6);
    else if (way) {
      view.x += way[0] * 0.1 * view.span * data.size[0];
      view.y += way[1] * 0.1 * view.span * data.size[1];
      later();
    } else return;
    event.preventDefault();
  };

  function save() {
    const link = document.createElement("a");
    link.download = "map.png";
    link.href = canvas.toDataURL("image/png");
    link.click();
  }

  for (const [name, colour, symbol] of data.categories) {
    const entry = make("span", "", legend);
    make("i", symbol, entry).style.background = colour;
    entry.append(name);
  }
  tool(view.tool);
  const watch = new ResizeObserver(later);
  watch.observe(root);
  const scheme = new MutationObserver(later);
  scheme.observe(document.documentElement, { attributes: true, subtree: false });
  draw();
  return () => {
    watch.disconnect();
    scheme.disconnect();
    view.playing = false;
  };
}
