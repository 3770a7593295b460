// Triage of pairs: one pair at a time, decided by key or button. The page answers at once; each decision is sent with
// all earlier ones of the queue, so none is lost when the server is busy.
const CHOICES = [
  { kind: "positive", key: "P", name: "Positive", about: "The document answers the query." },
  { kind: "drop", key: "D", name: "Drop", about: "Neither positive nor negative." },
  { kind: "true_negative", key: "N", name: "True negative", about: "The document does not answer the query." },
];
const nameOf = (kind) => CHOICES.find((choice) => choice.kind === kind)?.name ?? "Not decided";
const states = new WeakMap(); // root -> position, decisions and history, which survive a rerun of the page
let shown = null; // the card of the page

// A click on the tab of the triage gives the card the focus, after the tab itself had it, so that the keys work at once.
// The listener is called before the tab, which does not pass clicks on.
document.addEventListener("click", ({ target }) => {
  if (target.closest?.("[role=tab]")?.textContent.trim() === "Triage") setTimeout(focusWhenOpen, 300, 20);
}, true);

function focusWhenOpen(tries) {
  if (document.activeElement?.matches("input, textarea, [contenteditable=true]")) return;
  if (shown?.checkVisibility()) shown.focus({ preventScroll: true });
  else if (tries) setTimeout(() => focusWhenOpen(tries - 1), 100);
}

export default function ({ data, parentElement, setStateValue }) {
  const root = parentElement.querySelector(".triage");
  const { pairs } = data;
  const previous = states.get(root);
  const firstOpen = data.saved.findIndex((kind) => !kind);
  const state = previous?.id === data.id ? previous
    : { id: data.id, at: Math.max(0, firstOpen), kinds: [...data.saved], changed: {}, history: [], message: "" };
  states.set(root, state);
  if (root.dataset.queue === data.id) return; // a rerun of the page with the same queue: the view is up to date
  root.dataset.queue = data.id;

  const progress = element("p", { class: "progress", role: "status", "aria-live": "polite" });
  const bar = element("progress", { max: pairs.length, "aria-label": "Decided pairs" });
  const reasons = element("p", { class: "reasons" });
  const texts = ["Query", "Positive document", "Suspected document"].map((label) => {
    const text = element("p", { class: "text", lang: "" }), note = element("span", { class: "note" });
    return { box: element("section", {}, element("h3", {}, label, note), text), text, note };
  });
  const buttons = CHOICES.map(({ kind, key, name, about }) => element("button",
    { type: "button", class: kind, title: about, "aria-keyshortcuts": key, onclick: () => decide(kind) },
    name, element("kbd", {}, key)));
  const moves = [["Undo", "U", undo], ["Previous", "K", () => move(-1)], ["Next", "J", () => move(1)]].map(
    ([name, key, act]) => element("button", { type: "button", "aria-keyshortcuts": key, onclick: act },
      name, element("kbd", {}, key)));
  const card = element("div", { class: "card", tabindex: 0, role: "group",
    "aria-label": "Pair to decide. Keys: P positive, D drop, N true negative, U undo, J next, K previous." },
    reasons, element("div", { class: "texts" }, ...texts.map((one) => one.box)));
  shown = card;
  const hint = element("p", { class: "hint" }, "Click the card, or press Tab to reach it, to decide with the keys.");
  root.replaceChildren(element("div", { class: "head" }, progress, bar), // the texts move no button
    element("div", { class: "buttons" }, ...buttons, element("span", { class: "gap" }), ...moves), card, hint);

  function send() {
    setStateValue("decisions", { ...state.changed });
  }

  function decide(kind) {
    state.history.push([state.at, state.kinds[state.at]]);
    state.kinds[state.at] = state.changed[state.at] = kind;
    state.message = `${nameOf(kind)} saved.`;
    const open = (from, to) => state.kinds.findIndex((one, index) => index >= from && index < to && !one);
    const next = open(state.at + 1, pairs.length), before = open(0, state.at);
    if (next >= 0) state.at = next;
    else if (before >= 0) state.at = before;
    send();
    drawAgain();
  }

  function undo() {
    const last = state.history.pop();
    if (!last) return;
    const [index, kind] = last;
    state.at = index;
    state.kinds[index] = state.changed[index] = kind ?? null;
    state.message = "Undone.";
    send();
    drawAgain();
  }

  function move(by) {
    state.at = clamp(state.at + by, 0, pairs.length - 1);
    state.message = "";
    drawAgain();
  }

  function drawAgain() {
    draw();
    card.focus({ preventScroll: true });
  }

  function draw() {
    const pair = pairs[state.at], kind = state.kinds[state.at];
    const decided = state.kinds.filter(Boolean).length;
    const total = (pairs.length + data.more).toLocaleString("en");
    const next = data.more
      ? `press Update the plans for the next of ${data.more.toLocaleString("en")} further suspects.`
      : "press Update the plans, then Train with this plan.";
    const all = decided < pairs.length ? "" : ` All ${pairs.length} pairs of this list are decided: ${next}`;
    const of = data.more ? `${pairs.length} (the likeliest of ${total} suspected pairs)` : pairs.length;
    progress.textContent = `Pair ${state.at + 1} of ${of} · ${decided} decided in this list. ${state.message}${all}`;
    bar.value = decided;
    reasons.replaceChildren(...pair.reasons.map((reason) => element("span", {}, reason)),
      element("b", { class: kind ?? "open" }, nameOf(kind)));
    const [query, positive, suspect] = texts;
    query.text.textContent = pair.query;
    positive.text.textContent = pair.positive;
    suspect.text.textContent = pair.document;
    for (const { text } of texts) text.tabIndex = text.scrollHeight > text.clientHeight ? 0 : -1; // Page Down scrolls it
    query.note.textContent = `line ${pair.lines[0]}`;
    positive.note.textContent = `cosine ${number(pair.positive_cosine, 2)}`;
    suspect.note.textContent = `cosine ${number(pair.cosine, 2)} · line ${pair.lines[1]}`;
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(CHOICES[index].kind === kind)));
    moves[0].disabled = !state.history.length;
  }

  const actions = { j: () => move(1), k: () => move(-1), u: undo, arrowright: () => move(1), arrowdown: () => move(1),
    arrowleft: () => move(-1), arrowup: () => move(-1) };
  CHOICES.forEach(({ kind, key }) => { actions[key.toLowerCase()] = () => decide(kind); });
  root.onkeydown = (event) => {
    const action = actions[event.key.toLowerCase()];
    if (!action || event.ctrlKey || event.metaKey || event.altKey || event.repeat && event.key.length === 1) return;
    event.preventDefault();
    event.stopPropagation();
    action();
  };
  draw();
  focusWhenOpen(20);
}
