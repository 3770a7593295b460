"""What a card of the small "?" holds, and the papers that the cards cite."""

from __future__ import annotations

from dataclasses import dataclass

SIMCSE = "SimCSE: Simple Contrastive Learning of Sentence Embeddings (Gao et al., 2021)"
SUPCON = "Supervised Contrastive Learning (Khosla et al., 2020)"
UMAP = "UMAP: Uniform Manifold Approximation and Projection (McInnes et al., 2018)"
GEOMETRY = "Alignment and Uniformity on the Hypersphere (Wang and Isola, 2020)"


@dataclass(frozen=True)
class Word:
    """One word: what it means, its equation, the paper it is from, and where the released code departs from it."""

    definition: str
    equation: str = ""
    paper: str = ""
    deviation: str = ""
