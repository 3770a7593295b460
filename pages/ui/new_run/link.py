"""The settings of the form in the URL: those that differ from its preset, so that a link restores them.

Parameters are config keys (`loss.temperature=0.1`), `preset`, `sweep.KEY` for a list of values, and `sweep_runs` for a
random sample. Those that begin with `train.` are open sections, which their controls store.
"""

from typing import Any

import streamlit as st

from bsc_core.config import RunConfig, SweepConfig, flatten, make_config
from bsc_core.config.reading import format_value, parse_value, put
from bsc_core.errors import BscError
from bsc_core.presets.catalog import PRESETS
from pages.ui.components import config_form, display, page_layout, url
from pages.ui.new_run import loss_form, sweep_form
from pages.ui.new_run.form import FIELDS
from pages.ui.new_run.sweep_form import PAGE

MAX_DEPTH = 5  # dots of a config key

SECTIONS = ("data", "encoder", "batching", "loss", "training", "evaluation")
PRESET, NAME, SWEEP, RUNS = "preset", "name", "sweep", "sweep_runs"
PARAMETERS = (PRESET, NAME, SWEEP, RUNS, "*.*")
MAX_SAMPLED = 10_000
LAST = f"{PAGE}.link"  # session key: the parameters that were last read or written
LINKED_SWEEP = f"{PAGE}.link.sweep"  # session key: the lists of values of the last link
SAMPLED = f"{PAGE}.link.sampled"  # session key: the number of sampled combinations of the last link


def changed() -> dict[str, str] | None:
    """Return the parameters of a link that was opened, or reached by Back or Forward; None if there is none.

    A page that is opened without parameters keeps its form.
    """
    given = {name: text for name, text in st.query_params.items() if _is_parameter(name)}
    last = st.session_state.get(LAST)
    if given == last or (not given and (last is None or page_layout.arrived())):
        return None
    st.session_state[LAST] = given
    return given


def read(given: dict[str, str], values: config_form.Values) -> None:
    """Send the settings of a link to the form; an invalid one is reported and not used.

    Args:
        given: Parameters of the link.
        values: Values of the preset, which the link changes.
    """
    st.session_state[f"{PAGE}.name"] = given.get(NAME, "")
    st.session_state[LINKED_SWEEP] = _sweep(given, given.get("loss.name") or values.get("loss", {}).get("name", "bsc"))
    valid = url.check(RUNS, limits=(1, MAX_SAMPLED)) if RUNS in given else []
    st.session_state[SAMPLED] = int(float(valid[0])) if valid else None
    sent: config_form.Values = {}
    page_layout.send_settings(sent)
    settings = [name for name in given if "." in name and not name.startswith(f"{SWEEP}.")]
    for name in sorted(settings, key=lambda name: name != "loss.name"):  # other settings of a loss need its name
        try:
            single: config_form.Values = {}
            put(single, name, parse_value(given[name]), "link")
            merged = sent | {section: _merge(sent.get(section, {}), part) for section, part in single.items()}
            make_config(with_settings(values, merged), source="link")
        except BscError as error:
            url.report(name, f"{error}. The setting {name} of this link is not used.")
        else:
            sent = merged
    page_layout.send_settings(sent)


def with_settings(values: config_form.Values, sent: config_form.Values) -> config_form.Values:
    """Return a preset's values with the settings that a link or another page sent."""
    result = {section: dict(part) for section, part in values.items()}
    for section, part in sent.items():
        preset = result.get(section, {})
        result[section] = loss_form.override(preset, part) if section == "loss" else _merge(preset, part)
    return result


def sweep_of(preset: str) -> dict[str, Any]:
    """Return the lists of values of the last link, else those of the preset."""
    linked: dict[str, Any] | None = st.session_state.get(LINKED_SWEEP)
    return PRESETS[preset].sweep if linked is None else linked


def write(config: RunConfig, sweep: SweepConfig | None, values: config_form.Values, *, fitting: str) -> dict[str, str]:
    """Write what differs from the preset into the URL, and return the settings that do, the loss first.

    Args:
        config: The config of the form.
        sweep: The lists of values of the form.
        values: The values of the preset, with the dataset.
        fitting: The preset that the form starts from if a link names none.
    """
    preset, over = st.session_state[f"{PAGE}.preset"], {} if sweep is None else sweep.over
    parameters = {} if preset == fitting else {PRESET: preset}
    parameters |= {NAME: config.name} if config.name else {}
    if config.loss.name != values.get("loss", {}).get("name", "bsc"):  # what differs from the defaults of that loss
        parameters["loss.name"] = config.loss.name
        values = {**values, "loss": {"name": config.loss.name}}
    start = flatten(make_config(values, source="preset"))
    changed = {
        key: format_value(value)
        for key, value in flatten(config, SECTIONS).items()
        if value != start.get(key) and key not in over and _has_widget(key)
    }
    if "loss.name" in parameters:
        changed = {"loss.name": config.loss.name, **changed}
    parameters |= changed
    if dict(over) != {key: tuple(entries) for key, entries in PRESETS[preset].sweep.items()}:
        lists = {f"{SWEEP}.{key}": format_value(list(entries)) for key, entries in over.items()}
        parameters |= lists or {SWEEP: "none"}
    parameters |= {RUNS: str(sweep.runs)} if sweep is not None and sweep.runs else {}
    display.write_url(parameters, [name for name in st.query_params if _is_parameter(name)])
    st.session_state[LAST] = parameters
    return changed


def _is_parameter(name: str) -> bool:
    return name in (PRESET, NAME, SWEEP, RUNS) or ("." in name and not name.startswith(f"{PAGE}."))


def _has_widget(key: str) -> bool:
    """Whether the form can change a key; the data section is the dataset's except for a few fields."""
    section, _, field = key.partition(".")
    return section != "data" or field in FIELDS["data"]


def _sweep(given: dict[str, str], loss: str) -> dict[str, Any] | None:
    """Return the lists of values of a link, for a config with this loss; a key without a field is reported."""
    lists = {name.partition(".")[2]: _values(text) for name, text in given.items() if name.startswith(f"{SWEEP}.")}
    for key in [key for key in lists if not _is_field(key, loss)]:
        del lists[key]
        url.report(
            f"{SWEEP}.{key}", f"{url.shorten(key)} is not a setting of this form. Its list in this link is not used."
        )
    if lists:
        return {key: tuple(entries) for key, entries in lists.items()}
    return {} if given.get(SWEEP) == "none" else None


def _values(text: str) -> list[Any]:
    """Return the values of a list, `[0.02, 0.1]`, or of what `bsc sweep --over` accepts, `0.02,0.1`."""
    value = parse_value(text)
    return value if isinstance(value, list) else [parse_value(part.strip()) for part in text.split(",")]


def _is_field(key: str, loss: str) -> bool:
    """Whether a config key belongs to a field of the form."""
    if key.count(".") > MAX_DEPTH:
        return False
    try:
        config_form.info_of(*sweep_form.form_field(key, loss))
    except (KeyError, TypeError):
        return False
    return _has_widget(key)


def _merge(first: Any, second: Any) -> Any:
    """Merge nested sections; values of the second win."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return second
    return {**first, **{key: _merge(first.get(key), value) for key, value in second.items()}}
