// Slider over the frames of an animated map, and the button that plays them.
const SECONDS_PER_FRAME = 1.4, SNAP = 0.06;

// view.time is the number of the shown frame, with fractions between two frames.
function frameSlider(root, view, names, { draw, drawLater }) {
  const last = names.length - 1, output = element("output");
  const play = element("button", { type: "button", "aria-label": "Play the animation" });
  const range = element("input", { type: "range", min: 0, max: last, step: 0.01, "aria-label": "Training progress" });
  const show = () => {
    const nearest = Math.round(view.time);
    output.textContent = Math.abs(view.time - nearest) < SNAP / 2 ? names[nearest] : `${names[Math.floor(view.time)]} →`;
    range.value = view.time;
    range.setAttribute("aria-valuetext", output.textContent);
    play.textContent = view.playing ? "❚❚" : "▶";
  };
  const moveTo = (time) => {
    view.playing = false;
    view.time = time;
    show();
    drawLater();
  };
  range.oninput = () => {
    const nearest = Math.round(range.value);
    moveTo(Math.abs(range.value - nearest) < SNAP ? nearest : Number(range.value));
  };
  range.onkeydown = (event) => {
    const [down, right] = ARROWS[event.key] ?? [0, 0];
    if (!down && !right) return;
    event.preventDefault();
    moveTo(clamp(Math.round(view.time) + right - down, 0, last));
  };
  const tick = (now) => {
    if (!view.playing || !root.isConnected) return;
    view.time = Math.min(last, view.time + Math.min(100, now - (view.lastTick ?? now)) / 1000 / SECONDS_PER_FRAME);
    view.lastTick = now;
    view.playing = view.time < last;
    show();
    draw();
    requestAnimationFrame(tick);
  };
  play.onclick = () => {
    view.playing = !view.playing;
    if (view.time >= last) view.time = 0;
    view.lastTick = undefined;
    show();
    requestAnimationFrame(tick);
  };
  show();
  return element("div", { class: "slide" }, play, range, output);
}
