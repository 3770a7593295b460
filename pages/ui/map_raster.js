// Points as pixels: discs and diamonds are blended into an image one by one, so that 100,000 of them take milliseconds.
const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const textOf = (bytes) => {
  let letters = "";
  for (let at = 0; at < bytes.length; at += 8192) letters += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(letters);
};
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const rgbOf = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
const stamps = new Map();

function rgbShown(colour) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

// a disc or diamond: how far its pixels lie from the middle, as columns, rows and bytes, and how much each covers, to 256
function stampOf(radius, diamond, width, strength) {
  const key = `${radius.toFixed(1)} ${diamond} ${width} ${strength}`;
  if (stamps.has(key)) return stamps.get(key);
  if (stamps.size > 200) stamps.clear();
  const reach = Math.ceil(radius + 0.5), x = [], y = [], cover = [];
  for (let dy = -reach; dy <= reach; dy++)
    for (let dx = -reach; dx <= reach; dx++) {
      const away = diamond ? (Math.abs(dx) + Math.abs(dy)) / 1.2 : Math.hypot(dx, dy);
      const part = Math.round(256 * strength * clamp(radius + 0.5 - away, 0, 1));
      if (part > 4) x.push(dx), y.push(dy), cover.push(part);
    }
  const bytes = x.map((dx, part) => 4 * (y[part] * width + dx));
  const made = { reach, bytes: Int32Array.from(bytes), x: Int8Array.from(x), y: Int8Array.from(y), cover: Int32Array.from(cover) };
  stamps.set(key, made);
  return made;
}

// xs, ys: pixels of the points in `order`; box: [left, top, right, bottom] that clips; marks: {rgb, diamond} of a category
function blend(pixels, width, order, xs, ys, values, marks, radius, strength, box) {
  const own = marks.map((mark) => stampOf(radius, mark.diamond, width, strength));
  const [left, top, right, bottom] = box, colours = Int32Array.from(marks.flatMap((mark) => mark.rgb));
  for (let place = 0; place < order.length; place++) {
    const point = order[place], cx = (xs[point] + 0.5) | 0, cy = (ys[point] + 0.5) | 0, value = values[point];
    const { reach, bytes, x, y, cover } = own[value];
    if (cx < left - reach || cx >= right + reach || cy < top - reach || cy >= bottom + reach) continue;
    const red = colours[3 * value], green = colours[3 * value + 1], blue = colours[3 * value + 2];
    const whole = cx >= left + reach && cx < right - reach && cy >= top + reach && cy < bottom - reach;
    const middle = 4 * (cy * width + cx);
    for (let part = 0; part < cover.length; part++) {
      if (!whole) {
        const px = cx + x[part], py = cy + y[part];
        if (px < left || px >= right || py < top || py >= bottom) continue;
      }
      const at = middle + bytes[part], share = cover[part];
      pixels[at] += ((red - pixels[at]) * share) >> 8;
      pixels[at + 1] += ((green - pixels[at + 1]) * share) >> 8;
      pixels[at + 2] += ((blue - pixels[at + 2]) * share) >> 8;
    }
  }
}

// whether each point lies in the polygon, given as [x, y, x, y ...], by the even-odd rule
function inside(polygon, xs, ys, chosen) {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let at = 0; at < polygon.length; at += 2) {
    left = Math.min(left, polygon[at]);
    right = Math.max(right, polygon[at]);
    top = Math.min(top, polygon[at + 1]);
    bottom = Math.max(bottom, polygon[at + 1]);
  }
  for (let point = 0; point < xs.length; point++) {
    const x = xs[point], y = ys[point];
    if (x < left || x > right || y < top || y > bottom) continue;
    let odd = false;
    for (let at = 0, last = polygon.length - 2; at < polygon.length; last = at, at += 2) {
      const above = polygon[at + 1] > y, below = polygon[last + 1] > y;
      if (above !== below) {
        const edge = ((polygon[last] - polygon[at]) * (y - polygon[at + 1])) / (polygon[last + 1] - polygon[at + 1]);
        if (x < edge + polygon[at]) odd = !odd;
      }
    }
    if (odd) chosen[point] = 1;
  }
}
