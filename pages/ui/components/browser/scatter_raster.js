// Points as pixels: discs and diamonds are blended into an image one by one, so that 100,000 of them take milliseconds.
const stamps = new Map(); // shape -> pixels of a disc or diamond

// The pixels of a color as the browser shows it: [red, green, blue, alpha].
function shownPixel(color) {
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return context.getImageData(0, 0, 1, 1).data;
}

// Pixels of a disc or diamond relative to its center: x, y, offset in bytes, and opacity from 0 to 256.
function stampOf(radius, isDiamond, width, opacity) {
  const key = `${radius.toFixed(1)} ${isDiamond} ${width} ${opacity}`;
  if (stamps.has(key)) return stamps.get(key);
  if (stamps.size > 200) stamps.clear();
  const reach = Math.ceil(radius + 0.5), x = [], y = [], offsets = [], opacities = [];
  for (let dy = -reach; dy <= reach; dy++)
    for (let dx = -reach; dx <= reach; dx++) {
      const distance = isDiamond ? (Math.abs(dx) + Math.abs(dy)) / 1.2 : Math.hypot(dx, dy);
      const covered = Math.round(256 * opacity * clamp(radius + 0.5 - distance, 0, 1));
      if (covered > 4) x.push(dx), y.push(dy), offsets.push(4 * (dy * width + dx)), opacities.push(covered);
    }
  const stamp = { reach, x: Int8Array.from(x), y: Int8Array.from(y), offsets: Int32Array.from(offsets), opacities: Int32Array.from(opacities) };
  stamps.set(key, stamp);
  return stamp;
}

// points: indices in drawing order; xs, ys: CSS pixels, multiplied by ratio; categories: index into marks ({rgb, isDiamond})
// of each point; box: [left, top, right, bottom] in image pixels, outside of which nothing is drawn.
function blend(pixels, width, { points, xs, ys, ratio, categories, marks, radius, opacity, box }) {
  const shapes = marks.map((mark) => stampOf(radius, mark.isDiamond, width, opacity));
  const [left, top, right, bottom] = box, colors = Int32Array.from(marks.flatMap((mark) => mark.rgb));
  for (const point of points) {
    const cx = (xs[point] * ratio + 0.5) | 0, cy = (ys[point] * ratio + 0.5) | 0, category = categories[point];
    const { reach, x, y, offsets, opacities } = shapes[category];
    if (cx < left - reach || cx >= right + reach || cy < top - reach || cy >= bottom + reach) continue;
    const red = colors[3 * category], green = colors[3 * category + 1], blue = colors[3 * category + 2];
    const isInside = cx >= left + reach && cx < right - reach && cy >= top + reach && cy < bottom - reach;
    const center = 4 * (cy * width + cx);
    for (let part = 0; part < opacities.length; part++) {
      if (!isInside) {
        const px = cx + x[part], py = cy + y[part];
        if (px < left || px >= right || py < top || py >= bottom) continue;
      }
      const byte = center + offsets[part], share = opacities[part];
      pixels[byte] += ((red - pixels[byte]) * share) >> 8;
      pixels[byte + 1] += ((green - pixels[byte + 1]) * share) >> 8;
      pixels[byte + 2] += ((blue - pixels[byte + 2]) * share) >> 8;
    }
  }
}

function unpackBits(text, count) {
  const bytes = bytesOf(text);
  return Uint8Array.from({ length: count }, (_, bit) => (bytes[bit >> 3] >> (7 - (bit & 7))) & 1);
}

function packBits(bits) {
  const bytes = new Uint8Array(Math.ceil(bits.length / 8));
  bits.forEach((bit, index) => bit && (bytes[index >> 3] |= 128 >> (index & 7)));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
