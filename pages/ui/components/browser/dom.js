// Shared by all browser components: elements, numbers, colors and bytes.
const SVG = "http://www.w3.org/2000/svg";
const ARROWS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }; // rows, columns
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
// The rows of a matrix from `pack_matrix` in mount.py.
function rowsOf({ type, columns, bytes }) {
  const values = new { float32: Float32Array, float64: Float64Array }[type](bytesOf(bytes).buffer);
  return Array.from({ length: values.length / columns }, (_, row) => Array.from(values.subarray(row * columns, (row + 1) * columns)));
}
const rgbOf = (color) => [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
const number = (value, digits = 3) => (Object.is(value, -0) || Math.abs(value) < 0.5 * 10 ** -digits
  ? (0).toFixed(digits) : value.toFixed(digits)).replace("-", "\u2212");

// Functions become properties (onclick), other values become attributes.
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}
const element = (tag, attributes = {}, ...children) => filled(document.createElement(tag), attributes, children);
// A slider; onMove(value, isDone) is called while it moves, and once it rests, since a held key changes it many times a second.
const QUIET_MS = 250;
function sliderInput(attributes, onMove) {
  let timer = 0;
  const release = () => {
    if (timer) onMove(Number(input.value), true);
    clearTimeout(timer);
    timer = 0;
  };
  const input = element("input", { type: "range", ...attributes, onblur: release, oninput: () => onMove(Number(input.value), false),
    onchange: () => {
      clearTimeout(timer);
      timer = setTimeout(release, QUIET_MS);
    } });
  return input;
}
const svg = (tag, attributes = {}, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

// The color at a share (0 to 1) of a scale of colors, as [red, green, blue].
function colorAt(scale, share) {
  const position = clamp(share, 0, 1) * (scale.length - 1);
  const low = Math.min(scale.length - 2, Math.floor(position));
  const [from, to] = [rgbOf(scale[low]), rgbOf(scale[low + 1])];
  return from.map((value, channel) => Math.round(value + (to[channel] - value) * (position - low)));
}
// The text color that is readable on a color: the one with the higher contrast ratio (WCAG 2).
const luminance = (color) => color.reduce((sum, value, channel) => {
  const share = value / 255, linear = share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  return sum + [0.2126, 0.7152, 0.0722][channel] * linear;
}, 0);
const [DARK_INK, LIGHT_INK] = ["#000000", "#ffffff"];
const contrast = (a, b) => (Math.max(luminance(a), luminance(b)) + 0.05) / (Math.min(luminance(a), luminance(b)) + 0.05);
const inkOn = (color) => (contrast(color, rgbOf(LIGHT_INK)) >= contrast(color, rgbOf(DARK_INK)) ? LIGHT_INK : DARK_INK);
