// Shared by the heatmap and the scatter plot: a bar of buttons, a focusable canvas, a legend and a tooltip.
function canvasFrame(root, label) {
  const canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": label });
  const [bar, legend, tip] = ["bar", "legend", "tip"].map((name) => element("div", { class: name }));
  root.replaceChildren(bar, canvas, legend, tip);
  return { bar, canvas, legend, tip };
}

const barButton = (bar, text, label, onclick) =>
  bar.appendChild(element("button", { type: "button", "aria-label": label, title: label, onclick }, text));

function legendEntry(legend, color, text, symbol = "") {
  const mark = element("i", { class: symbol });
  mark.style.background = color;
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
