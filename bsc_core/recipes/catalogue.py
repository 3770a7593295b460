"""Every recipe by its name, in the order in which they are listed."""

from __future__ import annotations

from bsc_core.errors import ConfigError
from bsc_core.recipes.article_claims import ARTICLE_CLAIMS
from bsc_core.recipes.best import BEST_RECIPES
from bsc_core.recipes.bsc_claims import BSC_CLAIMS
from bsc_core.recipes.claims import Recipe
from bsc_core.recipes.margin_claims import MARGIN_CLAIMS
from bsc_core.recipes.scl_claims import SCL_CLAIMS
from bsc_core.recipes.setfit_claims import SETFIT_CLAIMS

RECIPES: dict[str, Recipe] = {
    **BSC_CLAIMS,
    **ARTICLE_CLAIMS,
    **MARGIN_CLAIMS,
    **SETFIT_CLAIMS,
    **SCL_CLAIMS,
    **BEST_RECIPES,
}


def recipes_named(names: list[str]) -> list[Recipe]:
    """The recipes of these names; `all` is every one. Raises ConfigError for an unknown name, listing what there is."""
    if "all" in names:
        return list(RECIPES.values())
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise ConfigError(f"there is no recipe {unknown[0]!r}; there are {', '.join(RECIPES)}, and all")
    return [RECIPES[name] for name in names]
