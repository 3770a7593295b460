// A small histogram per column. Dragging over the bars, or moving one of the two handles, selects a range of bins.
const parts = new WeakMap(); // root -> the element that had the focus, by label, which survives a rerun of the page

function columnOf(column, send) {
  const last = column.counts.length - 1, highest = Math.max(...column.counts);
  let [low, high] = column.selected ?? [0, last];
  const isActive = Boolean(column.selected || column.none);
  const bars = element("div", { class: "bars", "aria-hidden": "true" }), ends = element("div", { class: "ends", "aria-hidden": "true" });
  const cells = column.counts.map((count, bin) => {
    const bar = (number) => {
      const node = element("i");
      node.style.height = `${number ? Math.max(4, (100 * number) / highest) : 0}%`;
      return node;
    };
    const cell = bars.appendChild(element("div", {}, bar(count - column.shown[bin]), bar(column.shown[bin])));
    return cell;
  });
  const handle = (name, change) => {
    const input = element("input", { type: "range", min: 0, max: last, "aria-label": `${column.name}: ${name}` });
    input.oninput = () => { change(Number(input.value)); show(); };
    input.onchange = () => commit();
    return input;
  };
  const from = handle("from", (bin) => { low = Math.min(bin, high); });
  const to = handle("to", (bin) => { high = Math.max(bin, low); });

  function show() {
    cells.forEach((cell, bin) => cell.classList.toggle("outside", bin < low || bin > high));
    [from.value, to.value] = [low, high];
    from.style.zIndex = low === last ? 2 : 1; // the handle that can still move is on top
    to.style.zIndex = low === last ? 1 : 2;
    const texts = [column.ends[low][0], column.ends[high][1]];
    [from, to].forEach((input, side) => input.setAttribute("aria-valuetext", texts[side]));
    ends.replaceChildren(...texts.map((text) => element("span", {}, text)));
  }

  const commit = () => send({ name: column.name, first: low, last: high });
  const binAt = (event) => {
    const area = bars.getBoundingClientRect();
    return clamp(Math.floor(((event.clientX - area.left) / area.width) * (last + 1)), 0, last);
  };
  let start = null;
  const brush = (event) => {
    const bin = binAt(event);
    [low, high] = [Math.min(start, bin), Math.max(start, bin)];
    show();
  };
  bars.onpointerdown = (event) => {
    start = binAt(event);
    bars.setPointerCapture(event.pointerId);
    brush(event);
  };
  bars.onpointermove = (event) => start !== null && brush(event);
  bars.onpointerup = () => { start = null; commit(); };
  bars.onpointercancel = () => { start = null; };
  const clear = element("button", { type: "button", "aria-label": `${column.name}: clear the range`, title: "Clear the range",
    onclick: () => send({ name: column.name, first: 0, last }) }, "×");
  const head = element("div", { class: "head" }, element("span", { title: column.name }, column.name), ...(isActive ? [clear] : []));
  show();
  return element("div", { class: "column", role: "group", "aria-label": `${column.name}: range of the runs` },
    head, bars, element("div", { class: "handles" }, from, to), ends);
}

export default function ({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".histograms");
  const send = (range) => {
    parts.set(root, root.getRootNode().activeElement?.getAttribute("aria-label"));
    setTriggerValue("range", range);
  };
  root.replaceChildren(...data.columns.map((column) => columnOf(column, send)));
  const focused = parts.get(root);
  if (focused) root.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}
