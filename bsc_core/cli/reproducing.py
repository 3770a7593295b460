"""The command that puts the papers' claims to the test."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bsc_core.cli.commands import Outcome
from bsc_core.cli.running import perform_here
from bsc_core.errors import InputError

if TYPE_CHECKING:
    from bsc_core.recipes.claims import Recipe


def reproduce(arguments: argparse.Namespace) -> Outcome:
    """Put claims of the papers to the test; what was trained before is not trained again."""
    from bsc_core.recipes.catalogue import RECIPES, recipes_named

    if arguments.list:
        return 0, {"recipes": [_about(recipe) for recipe in RECIPES.values()]}
    if arguments.report is not None:
        from bsc_core.recipes.report import write_report

        return 0, {"report": str(write_report(Path(arguments.report)))}
    if not arguments.names:
        raise InputError("name the recipes to reproduce, or all; `bsc reproduce --list` shows them")
    if arguments.form == "full" and arguments.data is None:
        raise InputError("the full form needs --data FOLDER, the folder of data sets; --form small does without")
    return 0, {"findings": [_reproduced(recipe, arguments) for recipe in recipes_named(arguments.names)]}


def _reproduced(recipe: Recipe, arguments: argparse.Namespace) -> dict[str, Any]:
    from bsc_core.recipes.findings import reproduce as put_to_test
    from bsc_core.recipes.findings import write_finding
    from bsc_core.runs import RunStore

    found = put_to_test(
        recipe,
        RunStore(arguments.runs),
        perform_here,
        form=arguments.form,
        data=None if arguments.data is None else Path(arguments.data),
        say=lambda sentence: sys.stderr.write(f"{sentence}\n"),
    )
    if arguments.publish:
        write_finding(found)
    return found


def _about(recipe: Recipe) -> dict[str, Any]:
    from bsc_core.recipes.findings import read_findings

    known = read_findings().get(recipe.name)
    return {
        "name": recipe.name,
        "claim": recipe.claim,
        "paper": recipe.paper,
        "table": recipe.table,
        "data": sorted({subset.folder for subset in (*recipe.subsets.values(), *recipe.beside.values())}),
        "runs": len(recipe.arms) * len(recipe.seeds),
        "seconds": None if known is None else known["seconds"],
        "verdict": None if known is None else known["verdict"],
    }
