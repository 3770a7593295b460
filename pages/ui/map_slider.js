// The moments of a moving map, and what a visitor has zoomed to, kept while the page is drawn again.
const views = new WeakMap();
const SECONDS_A_STEP = 1.4, SNAP = 0.06;

// a slider from the first frame to the last and a button that plays them; view.at is the moment, between frames too
function sliderOf(root, make, view, names, { draw, later }) {
  const steps = names.length - 1, line = make("div", "slide"), play = make("button", "", line, "▶");
  play.setAttribute("aria-label", "Play the movement");
  const range = make("input", "", line);
  Object.assign(range, { type: "range", min: 0, max: steps, step: 0.01, value: view.at });
  range.setAttribute("aria-label", "Moment of training");
  const name = make("output", "", line);
  const show = () => {
    const near = Math.round(view.at);
    name.textContent = Math.abs(view.at - near) < SNAP / 2 ? names[near] : `${names[Math.floor(view.at)]} →`;
    range.setAttribute("aria-valuetext", name.textContent);
    play.textContent = view.playing ? "❚❚" : "▶";
  };
  range.oninput = () => {
    const near = Math.round(range.value);
    view.playing = false;
    view.at = Math.abs(range.value - near) < SNAP ? near : Number(range.value);
    show();
    later();
  };
  range.onkeydown = (event) => {
    const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    range.value = clamp(Math.round(view.at) + way, 0, steps);
    range.oninput();
  };
  const tick = (now) => {
    if (!view.playing || !root.isConnected) return;
    view.at = Math.min(steps, view.at + Math.min(100, now - (view.then ?? now)) / 1000 / SECONDS_A_STEP);
    view.then = now;
    view.playing = view.at < steps;
    range.value = view.at;
    show();
    draw();
    requestAnimationFrame(tick);
  };
  play.onclick = () => {
    view.playing = !view.playing;
    if (view.at >= steps) view.at = 0;
    view.then = undefined;
    show();
    requestAnimationFrame(tick);
  };
  show();
}

const pair = (count, names) => Object.fromEntries(names.map((name) => [name, new Float32Array(count)]));

function viewOf(root, data) {
  const kept = views.get(root);
  if (kept && kept.id === data.id) {
    kept.at = clamp(kept.at, 0, data.frames.length - 1);
    return kept;
  }
  const frames = data.frames.map((frame) => new Uint16Array(bytesOf(frame).buffer));
  const [x, y] = [data.size[0] / 2, data.size[1] / 2];
  const made = { id: data.id, frames, x, y, span: 1, tool: kept?.tool ?? "lasso", at: data.start, buffers: [] };
  views.set(root, made);
  return made;
}

function enlarged(panel, ratio) {
  const { large } = panel;
  for (let point = 0; point < panel.xs.length; point++) {
    large[0][point] = panel.xs[point] * ratio;
    large[1][point] = panel.ys[point] * ratio;
  }
  return large;
}

function unpacked(text, count) {
  const bits = new Uint8Array(count);
  if (!text) return bits;
  const bytes = bytesOf(text);
  for (let at = 0; at < count; at++) bits[at] = (bytes[at >> 3] >> (7 - (at & 7))) & 1;
  return bits;
}

function packed(bits) {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((bit, at) => bit && (bytes[at >> 3] |= 128 >> (at & 7)));
  return bytes;
}
