// Shared by the heatmap and the scatter plot: a bar of buttons, a focusable canvas, a legend and a tooltip. A new canvas
// has the focus if the previous one had it.
const SHAPES = { // of marks, from -1 to 1
  circle: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z", diamond: "M0-1.1L1.1 0L0 1.1L-1.1 0Z", "triangle-up": "M0-1L1.1 .9H-1.1Z",
  cross: "M-.4-1H.4V-.4H1V.4H.4V1H-.4V.4H-1V-.4H-.4Z", line: "M-1.2-.2H1.2V.2H-1.2Z",
};

function canvasFrame(root, label) {
  const canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": label });
  const [bar, legend, tip] = ["bar", "legend", "tip"].map((name) => element("div", { class: name }));
  tip.setAttribute("role", "status"); // also for a cell that is selected with the arrow keys
  const hadFocus = root.getRootNode().activeElement?.matches("canvas");
  root.replaceChildren(bar, canvas, legend, tip);
  if (hadFocus) canvas.focus({ preventScroll: true });
  return { bar, canvas, legend, tip };
}

const barButton = (bar, text, label, onclick) =>
  bar.appendChild(element("button", { type: "button", "aria-label": label, title: label, onclick }, text));

function legendEntry(legend, color, text, shape = "circle") {
  const path = svg("path", { d: SHAPES[shape], fill: color });
  const mark = svg("svg", { width: 12, height: 12, viewBox: "-1.2 -1.2 2.4 2.4", "aria-hidden": "true" }, path);
  legend.append(element("span", {}, mark, text));
}

// Position of a pointer event on the canvas, in CSS pixels.
function pointerPosition(canvas, event) {
  const frame = canvas.getBoundingClientRect();
  return [event.clientX - frame.left, event.clientY - frame.top];
}

function showTip(tip, canvas, x, y, ...lines) {
  tip.replaceChildren(...lines);
  tip.style.visibility = "visible";
  tip.style.left = `${clamp(x + 14, 0, Math.max(0, canvas.offsetWidth - tip.offsetWidth))}px`;
  const isBelow = y + 14 + tip.offsetHeight <= canvas.offsetHeight;
  tip.style.top = `${canvas.offsetTop + (isBelow ? y + 14 : y - tip.offsetHeight - 10)}px`;
}
