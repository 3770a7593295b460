// Buttons that save the picture of a figure with its title, show its data as a table and fill the window with it. The
// picture consists of the elements of a chart or the images of canvases; Streamlit draws the table and the full window.
const LINE = 20, SMALL = 12.5, MARGIN = 12, TITLE_FONT = "600 15px", PIXELS = 2; // of the PNG for each CSS pixel
const TOOLS = [["Show data", "Show as table", "table_view"], ["Show chart", "Show as chart", "show_chart"],
  ["Fullscreen", "Full screen", "fullscreen"]]; // Streamlit's name, text and icon

// The font of the page with its file, since a picture is also shown outside the page; empty if it is not found.
async function fontRule(family) {
  const rules = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).filter((rule) => rule instanceof CSSFontFaceRule);
  const named = (rule) => rule.style.getPropertyValue("font-family").replaceAll(/["']/g, "");
  const rule = rules.find((one) => family.includes(named(one)) && one.style.getPropertyValue("font-style") !== "italic");
  const address = rule?.style.getPropertyValue("src").match(/url\(["']?([^"')]+)/)?.[1];
  if (!address) return "";
  const file = new FileReader(), loaded = new Promise((resolve) => { file.onload = resolve; });
  const response = await fetch(new URL(address, rule.parentStyleSheet.href ?? document.baseURI));
  file.readAsDataURL(await response.blob());
  await loaded;
  const weight = rule.style.getPropertyValue("font-weight") || "normal";
  return `@font-face { font-family: "${named(rule)}"; font-weight: ${weight}; src: url("${file.result}"); }`;
}

export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".menu");
  const family = getComputedStyle(root).getPropertyValue("--st-font");
  const frame = document.querySelector(`.${data.frame}`);
  const save = (url, type) => element("a", { href: url, download: `${data.name}.${type}` }).click();
  const xmlOf = (node) => new XMLSerializer().serializeToString(node);
  const encoded = (xml) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(xml)}`;

  // The elements of the figure, also those inside a component.
  function find(selector) {
    const components = [...frame.querySelectorAll("*")].map((node) => node.shadowRoot).filter(Boolean);
    return [frame, ...components].flatMap((root) => [...root.querySelectorAll(selector)]);
  }

  // The SVG layers or the canvases of the figure, with the area of each on the page.
  function layers() {
    const charts = find("svg.marks, svg.main-svg");
    const nodes = charts.length ? charts : find("canvas").filter((node) => !node.closest("[data-testid=stDataFrame]"));
    return nodes.map((node) => ({ node, area: node.getBoundingClientRect() })).filter(({ area }) => area.width > 0);
  }

  // Breaks the title into lines of at most this width.
  function titleLines(width) {
    const context = element("canvas").getContext("2d"), lines = [];
    context.font = `${TITLE_FONT} ${family}`;
    for (const word of data.title.split(" ").filter(Boolean)) {
      const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
      if (lines.length && context.measureText(longer).width <= width) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
    return lines;
  }

  // The SVG of the figure: that of its component, or its layers below the title.
  async function picture() {
    const drawn = find("*").find((node) => node.picture)?.picture();
    if (drawn) return { width: Number(drawn.getAttribute("width")), height: Number(drawn.getAttribute("height")), xml: xmlOf(drawn) };
    const shown = layers(), style = getComputedStyle(root);
    const left = Math.min(...shown.map(({ area }) => area.left)), top = Math.min(...shown.map(({ area }) => area.top));
    const width = Math.ceil(Math.max(...shown.map(({ area }) => area.right)) - left) + 2 * MARGIN;
    const lines = titleLines(width - 2 * MARGIN), start = MARGIN + (lines.length ? lines.length * LINE + 8 : 0);
    const height = Math.ceil(Math.max(...shown.map(({ area }) => area.bottom)) - top) + start + MARGIN + (find(".legend span").length ? LINE : 0);
    const color = style.getPropertyValue("--st-text-color"), background = style.getPropertyValue("--st-background-color");
    const result = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
    result.append(svg("rect", { width, height, fill: background }));
    lines.forEach((line, row) => {
      const text = svg("text", { x: MARGIN, y: MARGIN + (row + 0.75) * LINE, fill: color }, line);
      text.setAttribute("style", `font: ${TITLE_FONT} ${family}`);
      result.append(text);
    });
    for (const { node, area } of shown) {
      const box = { x: area.left - left + MARGIN, y: area.top - top + start, width: area.width, height: area.height };
      const layer = node instanceof HTMLCanvasElement ? svg("image", { href: node.toDataURL("image/png") }) : node.cloneNode(true);
      for (const [name, value] of Object.entries(box)) layer.setAttribute(name, value);
      result.append(layer);
    }
    const entries = find("canvas").length ? find(".legend span").filter((entry) => entry.querySelector("svg")) : [];
    let x = MARGIN;
    for (const entry of entries) {
      const text = svg("text", { x: x + 16, y: height - MARGIN, fill: color }, entry.textContent);
      text.setAttribute("style", `font: ${SMALL}px ${family}`);
      const mark = entry.querySelector("svg").cloneNode(true);
      mark.setAttribute("x", x);
      mark.setAttribute("y", height - MARGIN - 10);
      result.append(mark, text);
      x += entry.getBoundingClientRect().width + 16;
    }
    result.prepend(svg("style", {}, await fontRule(family)));
    return { width, height, xml: xmlOf(result) };
  }

  async function savePng() {
    const { width, height, xml } = await picture(), image = new Image();
    image.src = encoded(xml);
    await image.decode();
    const canvas = element("canvas", { width: PIXELS * width, height: PIXELS * height });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    save(canvas.toDataURL("image/png"), "png");
  }

  const button = (text, icon, onclick) =>
    element("button", { type: "button", onclick }, element("i", { "aria-hidden": "true" }, icon), text);
  const buttons = layers().length || find("*").some((node) => node.picture)
    ? [button("Picture (SVG)", "image", async () => save(encoded((await picture()).xml), "svg")), button("Picture (PNG)", "image", savePng)]
    : [];
  for (const [name, text, icon] of TOOLS) {
    const tool = frame.querySelector(`[data-testid=stElementToolbar] [aria-label^="${name}"], .modebar-btn[data-title="${name}"]`);
    const use = () => {
      frame.querySelector("[data-testid=stPopoverButton]").click(); // closes the menu
      tool.click();
    };
    if (tool) buttons.push(button(text, icon, use));
  }
  root.replaceChildren(...buttons);
}
