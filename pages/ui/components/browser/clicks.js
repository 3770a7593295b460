// Acknowledges a click on a button, or Enter in the search box, at once: the element is busy until the page is drawn
// again, also when the server is slow. The styles are those of aria-busy in page_layout.py. A window that is little
// wider than those for which Streamlit itself collapses the sidebar opens with a collapsed one, too.
const APP = "[data-testid=stApp]";
const BUSY = "aria-busy";
const MOST = 60_000; // milliseconds until an element is no longer busy, if no answer comes
const NARROW = 900; // pixels
const THEME = /^stActiveTheme-(.*)(-v\d+)$/; // the key of a theme that was chosen on a page

function acknowledge(target) {
  const app = document.querySelector(APP);
  if (!app || !target) return;
  target.setAttribute(BUSY, "true");
  const state = () => app.getAttribute("data-test-script-state");
  let hasRun = false;
  const end = () => {
    target.removeAttribute(BUSY);
    observer.disconnect();
    clearTimeout(timer);
  };
  const observer = new MutationObserver(() => {
    if (state() !== "notRunning") hasRun = true;
    else if (hasRun) end();
  });
  const timer = setTimeout(end, MOST);
  observer.observe(app, { attributes: true, attributeFilter: ["data-test-script-state"] });
}

// Applies a theme that is chosen to all pages: Streamlit stores it for the page on which the app was opened.
// A theme that was chosen before this script was loaded is applied when it starts.
function shareTheme() {
  try {
    localStorage.length;
  } catch {
    return; // the browser blocks it
  }
  for (const name of ["setItem", "removeItem"]) {
    const change = Storage.prototype[name];
    Storage.prototype[name] = function (key, ...value) {
      change.call(this, key, ...value);
      const version = THEME.exec(key)?.[2];
      for (const { pathname } of version ? document.querySelectorAll("[data-testid=stSidebar] a[href]") : [])
        change.call(this, `stActiveTheme-${pathname}${version}`, ...value);
    };
  }
  const chosen = Object.keys(localStorage).find((key) => THEME.exec(key)?.[1] === location.pathname);
  if (chosen) localStorage.setItem(chosen, localStorage.getItem(chosen));
}

// Returns the focus to a text field that was drawn again, as in an expander whose label has the value that was entered.
function keepFocus() {
  const FIELDS = "input, textarea";
  let last = null; // the field with the focus, the class of its key, and its position among the fields of this key
  document.addEventListener("focusin", ({ target }) => {
    const box = target.matches(FIELDS) && target.closest("[class*='st-key-']");
    const key = box && [...box.classList].find((name) => name.startsWith("st-key-"));
    last = key ? { field: target, key, index: [...box.querySelectorAll(FIELDS)].indexOf(target) } : null;
  });
  document.addEventListener("focusout", ({ target }) => setTimeout(() => {
    if (last?.field === target && target.isConnected && document.activeElement !== target) last = null; // the user left it
  }));
  document.addEventListener("pointerdown", ({ target }) => { if (target !== last?.field) last = null; }, true);
  new MutationObserver(() => {
    if (!last || last.field.isConnected || document.activeElement !== document.body) return;
    document.querySelectorAll(`.${CSS.escape(last.key)} :is(${FIELDS})`)[last.index]?.focus({ preventScroll: true });
  }).observe(document.body, { childList: true, subtree: true });
}

export default function () {
  if (window.acknowledgesClicks) return;
  window.acknowledgesClicks = true;
  addOneEntryPerAction();
  shareTheme();
  keepFocus();
  if (innerWidth < NARROW) document.querySelector("[aria-controls=stSidebar][aria-expanded=true]")?.click();
  document.addEventListener("click", ({ target }) => acknowledge(target.closest(".stButton button:not(:disabled)")), true);
  document.addEventListener("keydown", ({ key, target }) => {
    if (key === "Enter" && target.matches("[data-testid=stMain] input[type=search]")) acknowledge(target);
  }, true);
}
