// Adds at most one entry to the browser's history for each action of the user. Streamlit adds one for each parameter
// that a page writes as it opens, so that Back would lead from a page to the same page. Another page is shown from its
// top.
function addOneEntryPerAction() {
  const push = history.pushState.bind(history);
  let hasActed = false; // since the last entry
  const act = ({ isTrusted }) => { hasActed ||= isTrusted; };
  for (const type of ["pointerdown", "click", "keydown", "change", "drop"]) addEventListener(type, act, true);
  addEventListener("popstate", () => { hasActed = false; }, true);
  history.pushState = (...entry) => {
    const { pathname } = location;
    (hasActed ? push : history.replaceState.bind(history))(...entry);
    if (location.pathname !== pathname) document.querySelector("[data-testid=stMain]")?.scrollTo(0, 0);
    hasActed = false;
  };
}
