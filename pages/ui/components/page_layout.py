"""Layout of every page: title, context bar with its values in the URL, jobs in the sidebar, links to other pages."""

import runpy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.errors import StreamlitAPIException, StreamlitPageNotFoundError

from bsc_core.config import DataConfig
from bsc_core.errors import BscError
from bsc_core.figures import theme
from pages.ui.components import config_form, data_cache, display, navigation, run_data, sidebar_jobs, url, users
from pages.ui.components.browser.mount import acknowledge_clicks

NO_RUN = "none"
CONTEXT = ("dataset", "encoder", "run")
DEFAULTS = {"dataset": data_cache.SAMPLE, "encoder": "bundled", "run": NO_RUN}
MAX_RUNS = 500  # that the bar offers
SIDEBAR_WIDTH = navigation.PAGE_CONFIG["initial_sidebar_state"]
# Streamlit's white text on primary buttons and chips is too light for their color in the dark theme, and so is the gray
# of its charts on a light page; REFERENCE is a color of marks. Texts of charts have an outline in the color of the
# page, so that they can be read over marks, and the last label of an axis exceeds its chart by a pixel. The sidebar
# keeps 300 px if the browser has drawn it before the settings of the page arrive. Buttons of a choice are as high as
# the select boxes next to them.
STYLE = (
    "<style>[data-testid='stBaseButton-primary'], [data-testid='stMultiSelectTagsContainer'] [data-tag]"
    " { color: light-dark(#FFFFFF, #0B1016); }"
    f"[data-testid='stVegaLiteChart'] text:is([fill='#808495'], [fill='{theme.REFERENCE}'])"
    " { fill: light-dark(#59606B, #A3A9B2); }"
    "[data-testid='stVegaLiteChart'] svg { overflow: visible; }"
    f"[data-testid='stVegaLiteChart'] text:not([fill='{theme.ON_DARK}'], [fill='{theme.ON_LIGHT}'])"
    " { paint-order: stroke; stroke: light-dark(#FFFFFF, #12171D); stroke-width: 3px; stroke-linejoin: round; }"
    "[data-testid='stVegaLiteChart'] .vega-bind { flex-wrap: nowrap; }"
    "[data-testid='stVegaLiteChart'] .vega-bind input { flex: 1; min-width: 0; }"
    "[data-testid='stHorizontalBlock']:has([data-testid='stSelectbox'], [data-testid='stTextInput'],"
    " [data-testid='stNumberInput']) [role='radiogroup'] button"
    " { min-height: 2.5rem; }"
    "[data-testid='stMainBlockContainer'] { padding-top: 3.5rem; }"
    "[data-testid='stSidebarUserContent'] [data-testid='stPageLink-NavLink']:not(:hover) { background: none; }"
    "[data-testid='stSidebarUserContent'] [data-testid='stPageLink-NavLink'] p { font-weight: 400; }"
    "[data-testid='stStatusWidget'] button { display: none; }"  # Stop: of the page's script, not of a run
    "h1 .stMarkdownColoredText"
    " { font-size: 1.125rem; font-weight: 400; padding-left: 0.5rem; color: light-dark(#59606B, #A3A9B2) !important; }"
    # The plan of a new run stays visible while the form next to it is scrolled.
    "@media (min-width: 1100px) { [data-testid='stLayoutWrapper']:has(> .st-key-train-plan)"
    " { position: sticky; top: 3.75rem; max-height: calc(100vh - 9rem); overflow-y: auto; } }"
    "@media (max-width: 640px) { [data-testid='stVegaLiteChart'] { max-width: 100%; overflow-x: auto; } }"
    "@media (max-width: 640px) { .st-key-lessons-cards [role='radiogroup'] { flex-wrap: nowrap; overflow-x: auto; }"
    " .st-key-lessons-cards button { flex: none; } }"
    "[data-testid='stBottomBlockContainer']"
    " { padding-block: 0.75rem; border-top: 1px solid light-dark(#DCE1E7, #333C46); }"
    "[data-testid='stSidebar'][data-collapsed='false'][style*='width: 300px']"
    f" {{ width: {SIDEBAR_WIDTH}px !important; }}"
    ".stButton button[aria-busy=true] { cursor: progress; outline: 2px dashed currentColor; outline-offset: 2px; }"
    "input[aria-busy=true] { cursor: progress; outline: 2px dashed currentColor; outline-offset: -2px; }</style>"
)
ARRIVED = "context_arrived"  # session key
APP = Path(__file__).parents[3] / "app.py"


@dataclass(frozen=True)
class Context:
    """The selection in the context bar: key of the dataset, name of the encoder, id of the run or None."""

    dataset_key: str
    encoder: str
    run_id: str | None


def setup_page(title: str, heading: str, *, bar: Sequence[str] = CONTEXT, parameters: Iterable[str] = ()) -> Context:
    """Draw what all pages share and return the context. Call it first on every page.

    Args:
        title: Name of the page.
        heading: What the page is about, next to its name.
        bar: The selections of the context bar, of CONTEXT; the others keep the value of the link or the previous page.
        parameters: The other parameters of the page in the URL; `*` stands for any characters. Others are reported.
    """
    _run_through_app()
    st.set_page_config(f"{title} · BSC Lab", **navigation.PAGE_CONFIG)
    st.html(STYLE + display.MENU_STYLE)
    sidebar_jobs.draw()
    with st.sidebar:
        acknowledge_clicks()
    users.draw_account()
    st.title(f"{title} :gray[{heading}]", anchor=False)
    st.session_state[ARRIVED] = st.session_state.get("context_page") != title
    st.session_state["context_page"] = title
    url.setup((*CONTEXT, *parameters), arrived=arrived())
    return context_bar(bar) if bar else saved_context()


def arrived() -> bool:
    """Whether this is the first run of the page since it was opened."""
    return bool(st.session_state[ARRIVED])


def _run_through_app() -> None:
    """Run app.py first when a link opened the page of a fresh server, which Streamlit finds in `pages/`.

    A page that is itself the main script (`streamlit run pages/data.py`) runs without app.py.
    """
    if st.session_state.pop(navigation.THROUGH_APP, False):
        return
    try:
        st.Page("pages/start.py")  # relative to the main script
    except StreamlitAPIException:
        return
    runpy.run_path(str(APP))
    st.stop()


def saved_context() -> Context:
    """Return the context that was last selected in this session."""
    context = DEFAULTS | st.session_state.get("context", {})
    run = None if context["run"] == NO_RUN else context["run"]
    return Context(context["dataset"], context["encoder"], run)


def context_bar(names: Sequence[str]) -> Context:
    """Draw the selections of the context bar with these names, of CONTEXT, and return the context."""
    runs = [NO_RUN, *(run.id for run in data_cache.run_store().list()[:MAX_RUNS])]
    choices = data_cache.datasets()
    options = {"dataset": list(choices), "encoder": list(config_form.ENCODERS), "run": runs}
    labels = data_cache.dataset_labels(choices)
    shown = {"dataset": labels, "encoder": config_form.ENCODERS, "run": data_cache.run_names(runs[1:])}
    context: dict[str, str] = st.session_state.setdefault("context", {})
    if url.is_history_navigation():  # the URL has every selection that is not the default
        for name in set(CONTEXT).difference(st.query_params):
            context.pop(name, None)
    of_run = _dataset_of(st.query_params.get("run"))
    if of_run is not None and "dataset" not in st.query_params:
        context["dataset"] = of_run
    if "dataset" in names and "run" in names:
        _match_dataset_and_run(context, labels)
    for name in CONTEXT:
        if name not in names:
            context[name] = st.query_params.get(name) or context.get(name) or DEFAULTS[name]
    existing, last = [], context.get("dataset")
    for name, cell in zip(names, display.columns(len(names), min_width=160), strict=True):
        with cell:
            fixed = _fixed_by_run(name, context) if "run" in names else None
            if _draw_choice(name, options[name], context, fixed=fixed, labels=shown.get(name, {})):
                existing.append(name)
            else:
                url.report(name, f"The {name} {url.shorten(st.query_params[name])} was not found; select another one.")
    if "run" not in names and context["dataset"] != last and _is_of_other_data(context["run"], context["dataset"]):
        context["run"] = NO_RUN  # as `select` does where the bar has the run
    _write_choices({name: context[name] for name in existing})
    return saved_context()


def _draw_choice(
    name: str, options: list[str], context: dict[str, str], *, fixed: str | None, labels: Mapping[str, str]
) -> bool:
    """Draw a select box and store its value in `context`; return False if the value in the URL does not exist.

    If `fixed` is not None, the box offers only that value; `context` still receives the value of the URL. An option is
    shown as its label in `labels`, if it has one.

    The URL decides, so that links, Back and reload show what they name. Without a value there, the selection of the
    previous page remains. A widget bound to the URL would lose its parameter on Back, because
    Streamlit removes the parameters of the widgets of the page that is left.
    """
    open_ended = name == "encoder"
    linked, last = st.query_params.get(name), context.get(name)
    if open_ended:
        options = list(dict.fromkeys([*options, *(value for value in (linked, last) if value)]))
    exists = linked is None or linked in options
    value = next((value for value in (linked, last if exists else None) if value in options), options[0])
    if linked == value != last and not url.is_history_navigation():
        st.query_params[name] = linked  # a link to the same page, such as in the sidebar, leaves the URL as it was
    context[name] = value
    if fixed is not None:
        st.session_state[name] = fixed
        about = f"The selected run was trained with this {name}. To use another one, select {NO_RUN} as run."
        st.selectbox(f"{name.capitalize()} (set by the run)", [fixed], key=name, help=about)
        return exists
    st.session_state[name] = value
    st.selectbox(
        name.capitalize(),
        options,
        key=name,
        format_func=lambda option: labels.get(option, option),
        accept_new_options=open_ended,
        on_change=lambda: select(name, st.session_state[name] or options[0]),
    )
    return exists


def _match_dataset_and_run(context: dict[str, str], labels: Mapping[str, str]) -> None:
    """Select no run if a link names another dataset; if it names both, the run decides, and a sentence says so."""
    linked, run_id = st.query_params.get("dataset"), st.query_params.get("run") or context.get("run")
    if linked is None or not _is_of_other_data(run_id, linked):
        return
    if "run" in st.query_params:
        of_run = _dataset_of(run_id) or DEFAULTS["dataset"]
        label = _fixed_by_run("dataset", context) or labels.get(of_run, of_run)
        url.report(
            "dataset",
            f"The dataset is {label}, on which the run was trained. Select another dataset to see it without the run.",
        )
        context["dataset"] = of_run
        del st.query_params["dataset"]
    else:
        context["run"] = NO_RUN


def _is_of_other_data(run_id: str | None, dataset: str) -> bool:
    """Whether a run has another training file than a dataset; False if one of them does not exist."""
    data, choice = _data_of(run_id), data_cache.datasets().get(dataset)
    return data is not None and choice is not None and choice.data.train != data.train


def _fixed_by_run(name: str, context: dict[str, str]) -> str | None:
    """Return the encoder of the selected run, or its dataset if that is not among the datasets of the bar.

    It replaces the choice of the bar. None without a run with embeddings.
    """
    run_id = st.query_params.get("run") or context.get("run") or NO_RUN
    if name == "run" or run_id == NO_RUN or (name == "dataset" and _dataset_of(run_id) is not None):
        return None
    try:
        run = data_cache.run_store().get(run_id)
        config = run.config() if run_data.models(run) else None
    except BscError:  # no such run, or a damaged one
        return None
    if config is None:
        return None
    value = config_form.value_title("encoder.name", config.encoder.name) if name == "encoder" else config.data.train
    return Path(value).name if Path(value).is_absolute() else value


def select(name: str, value: str) -> None:
    """Select the dataset, the encoder or the run of the context bar; call it before the bar is drawn, in a callback.

    A run selects its dataset as well, and another dataset selects no run.
    """
    choices = {name: value}
    if name == "run" and (of_run := _dataset_of(value)) is not None:
        choices["dataset"] = of_run
        if of_run != saved_context().dataset_key:
            st.toast("The dataset and the encoder are those of the run.")
    elif name == "dataset" and _is_of_other_data(st.query_params.get("run") or saved_context().run_id, value):
        choices["run"] = NO_RUN
        st.toast("The run is no longer selected, since it was trained on another dataset.")
    st.session_state.setdefault("context", {}).update(choices)
    _write_choices(choices)


def _write_choices(choices: Mapping[str, str]) -> None:
    """Write the values that are not the default to the URL; the default dataset is that of the run."""
    of_run = _dataset_of(choices.get("run") or st.query_params.get("run"))
    defaults = DEFAULTS if of_run is None else {**DEFAULTS, "dataset": of_run}
    display.write_url({name: value for name, value in choices.items() if value != defaults[name]}, choices)


def _dataset_of(run_id: str | None) -> str | None:
    """Return the key of the dataset of a run; None if there is no such run or dataset."""
    data = _data_of(run_id)
    return None if data is None else data_cache.dataset_key(data) or data_cache.dataset_of_file(data)


def _data_of(run_id: str | None) -> DataConfig | None:
    """Return how a run reads its data; None if there is no such run."""
    if run_id is None or run_id == NO_RUN:
        return None
    try:
        return data_cache.run_store().get(run_id).config().data
    except BscError:  # no such run, or a damaged one, which its page reports
        return None


def switch_page(name: str, **params: str) -> None:
    """Switch to pages/<name>.py with these URL parameters; `dataset`, `encoder` and `run` change the context bar."""
    try:
        st.switch_page(f"pages/{name}.py", query_params=params)
    except StreamlitPageNotFoundError:
        st.info(
            "This page runs without the app. Start the app with `bsc app` to open other pages.",
            icon=":material/info:",
        )


def action_bar() -> DeltaGenerator:
    """Return the container of the page's main actions, at the lower edge of the window however long the page is."""
    return st.bottom.container(horizontal=True, vertical_alignment="center")


def next_step_button(
    label: str,
    name: str,
    *,
    key: str,
    primary: bool = True,
    settings: dict[str, dict[str, Any]] | None = None,
    dataset: Callable[[], str] | None = None,
    **params: str,
) -> None:
    """Draw a button that opens the next page; place it in `action_bar`.

    Nothing is drawn for a page that the user may not open.

    Args:
        label: Label of the button.
        name: Name of the page.
        key: Session key of the button.
        primary: Whether the button is the main one of the page.
        settings: Settings for the New run page.
        dataset: Returns the key of the dataset to select, called after a click.
        params: Parameters of the URL.
    """
    if not users.may_open(name):
        return
    kind: Any = "primary" if primary else "secondary"
    if st.button(label, key=key, type=kind, icon=":material/arrow_forward:", icon_position="right"):
        if settings is not None:
            send_settings(settings)
        switch_page(name, **params, **({} if dataset is None else {"dataset": dataset()}))


def empty_state(text: str, button: str, name: str, *, key: str, **params: str) -> None:
    """Describe what will be on this page, with a button to the page where it is created."""
    with st.container(border=True):
        st.markdown(f":material/hourglass_empty: {text}")
        if users.may_open(name) and st.button(button, key=key, type="primary"):
            switch_page(name, **params)


def send_settings(values: dict[str, dict[str, object]]) -> None:
    """Store settings (sections of RunConfig, such as `batching` or `loss`) for the New run page; {} removes them."""
    st.session_state["sent_settings"] = values


def sent_settings() -> dict[str, dict[str, object]]:
    """Return the settings that another page sent to the New run page, else {}."""
    return dict(st.session_state.get("sent_settings", {}))
