"""One layer of BERT on real tokens only, forward and backward written out.

Written out because at some hundred tokens a step of autograd costs as much as what it does. Matrix products run in the
precision of the run; sums, layer norms, softmax and the residual stream's gradients stay in float32, as under
autocast.
Each `forward` returns what its `backward` takes as `kept`.
"""

# R rows, of which the first T are tokens, H hidden numbers, m texts of a block padded to L tokens, h heads, d numbers
# of a head (H = h d)

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bsc_core.encoders.layout import Block, Layout

Kept = tuple[Any, ...]
DRAWS = 2**16
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}


@dataclass(frozen=True)
class Linear:
    """weight: (out, in), bias: (out,), in the precision of products; the gradients beside them are float32."""

    weight: Tensor
    bias: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)

    def backward(self, x: Tensor, gradient: Tensor) -> Tensor:
        """Add the gradients of weight and bias, and return that of x."""
        if gradient.dtype == self.weight_gradient.dtype:
            self.weight_gradient.addmm_(gradient.T, x)
        else:
            self.weight_gradient.add_((gradient.T @ x).float())
        self.bias_gradient.add_(gradient.sum(0))
        return gradient @ self.weight


@dataclass(frozen=True)
class LayerNorm:
    """weight, bias: (H,) float32, with their gradients."""

    weight: Tensor
    bias: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor
    epsilon: float

    def forward(self, x: Tensor) -> tuple[Tensor, Kept]:
        y, mean, inverse = torch.native_layer_norm(x, x.shape[-1:], self.weight, self.bias, self.epsilon)
        return y, (x, mean, inverse)

    def backward(self, kept: Kept, gradient: Tensor) -> Tensor:
        """Add the gradients of weight and bias, and return that of x."""
        x, mean, inverse = kept
        of_x, of_weight, of_bias = torch.ops.aten.native_layer_norm_backward(
            gradient, x, x.shape[-1:], mean, inverse, self.weight, self.bias, [True, True, True]
        )
        self.weight_gradient.add_(of_weight)
        self.bias_gradient.add_(of_bias)
        result: Tensor = of_x
        return result


@dataclass(frozen=True)
class Dropout:
    """What a dropout module of the model does, in its present mode; its share is rounded to 1 / 65,536.

    Draws are 16 bits of torch's generator each, and a mask of 0 and 1 multiplies the bits of x: some times as fast as
    torch's own dropout on a processor.
    """

    module: nn.Dropout

    def forward(self, x: Tensor) -> tuple[Tensor, Kept | None]:
        dropped = round(self.module.p * DRAWS) if self.module.training else 0
        if not dropped:
            return x, None
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        largest = dropped - DRAWS // 2 - 1  # of the draws that drop
        mask = draws[: x.numel()].clamp_(largest, largest + 1).sub_(largest).view(x.shape)  # 0 or 1
        kept = mask, DRAWS / (DRAWS - dropped)
        return self.backward(kept, x), kept

    def backward(self, kept: Kept | None, gradient: Tensor) -> Tensor:
        if kept is None:
            return gradient
        mask, scale = kept
        bits: Tensor = gradient.view(BITS[gradient.dtype]) * mask
        return bits.view(gradient.dtype).mul_(scale)


@dataclass(frozen=True)
class Attention:
    """Attention within each text, by blocks of texts padded to one length. width: d. scale: of the scores."""

    heads: int
    width: int
    scale: float
    dropout: Dropout

    def forward(self, projected: Tensor, layout: Layout) -> tuple[Tensor, list[Kept]]:
        """projected: (R, 3H) queries, keys and values. Returns (R, H), and what backward needs of each block."""
        mixed = projected.new_empty(len(projected), projected.shape[1] // 3)
        mixed[layout.real :] = 0
        return mixed, [self._forward(projected, block, mixed) for block in layout.blocks]

    def backward(self, layout: Layout, kept: list[Kept], gradient: Tensor) -> Tensor:
        """gradient: (R, H), of what was returned. Returns that of `projected`, (R, 3H)."""
        result = gradient.new_empty(len(gradient), 3 * gradient.shape[1])
        result[layout.real :] = 0
        for block, of_block in zip(layout.blocks, kept, strict=True):
            self._backward(block, of_block, gradient, result)
        return result

    def _forward(self, projected: Tensor, block: Block, mixed: Tensor) -> Kept:
        queries, keys, values = self._heads(projected[block.source], block)
        scores = torch.baddbmm(block.mask, queries.float(), keys.float().transpose(1, 2), alpha=self.scale)
        shares = torch.softmax(scores, -1).to(projected.dtype)  # (m h, L, L)
        dropped, mask = self.dropout.forward(shares)
        mixed[block.start : block.stop] = self._tokens((dropped @ values)[None], block)
        return queries, keys, values, shares, dropped, mask

    def _backward(self, block: Block, kept: Kept, gradient: Tensor, result: Tensor) -> None:
        queries, keys, values, shares, dropped, mask = kept
        padded = gradient.new_zeros(block.texts * block.length, gradient.shape[1])
        padded[block.place] = gradient[block.start : block.stop]
        (out,) = self._heads(padded, block)
        of_shares = self.dropout.backward(mask, out @ values.transpose(1, 2)).float()
        of_scores = torch.ops.aten._softmax_backward_data(of_shares, shares.float(), -1, torch.float32)
        of_scores = of_scores.mul_(self.scale).to(gradient.dtype)
        of_values = dropped.transpose(1, 2) @ out
        three = torch.stack((of_scores @ keys, of_scores.transpose(1, 2) @ queries, of_values))
        result[block.start : block.stop] = self._tokens(three, block)

    def _heads(self, padded: Tensor, block: Block) -> Tensor:
        """(m L, k H) to (k, m h, L, d): each head of each text for itself."""
        apart = padded.view(block.texts, block.length, -1, self.heads, self.width).permute(2, 0, 3, 1, 4)
        return apart.contiguous().flatten(1, 2)

    def _tokens(self, parts: Tensor, block: Block) -> Tensor:
        """(k, m h, L, d) to (T', k H): real tokens only, the heads of a token side by side."""
        apart = parts.view(len(parts), block.texts, self.heads, block.length, -1).permute(1, 3, 0, 2, 4)
        return apart.reshape(block.texts * block.length, -1)[block.place]


@dataclass(frozen=True)
class PackedLayer:
    """A layer of BERT: attention and feed-forward part, each followed by residual sum and layer norm."""

    project: Linear
    attention: Attention
    output: Linear
    output_dropout: Dropout
    output_norm: LayerNorm
    widen: Linear
    narrow: Linear
    narrow_dropout: Dropout
    narrow_norm: LayerNorm

    def forward(self, stream: Tensor, layout: Layout) -> tuple[Tensor, Kept]:
        """stream: (R, H) float32. Returns the next one."""
        x = stream.to(self.project.weight.dtype)
        mixed, blocks = self.attention.forward(self.project.forward(x), layout)
        attended, output_mask = self.output_dropout.forward(self.output.forward(mixed))
        middle, of_output_norm = self.output_norm.forward(stream + attended)
        y = middle.to(x.dtype)
        wide = self.widen.forward(y)
        active = functional.gelu(wide)
        fed, narrow_mask = self.narrow_dropout.forward(self.narrow.forward(active))
        result, of_narrow_norm = self.narrow_norm.forward(middle + fed)
        return result, (x, blocks, mixed, output_mask, of_output_norm, y, wide, active, narrow_mask, of_narrow_norm)

    def backward(self, layout: Layout, kept: Kept, gradient: Tensor) -> Tensor:
        """gradient: (R, H) float32, of the result. Adds the weights' gradients and returns that of stream."""
        x, blocks, mixed, output_mask, of_output_norm, y, wide, active, narrow_mask, of_narrow_norm = kept
        of_sum = self.narrow_norm.backward(of_narrow_norm, gradient)
        of_fed = self.narrow_dropout.backward(narrow_mask, of_sum.to(x.dtype))
        of_wide = torch.ops.aten.gelu_backward(self.narrow.backward(active, of_fed), wide)
        of_middle = of_sum + self.widen.backward(y, of_wide)
        of_sum = self.output_norm.backward(of_output_norm, of_middle)
        of_attended = self.output_dropout.backward(output_mask, of_sum.to(x.dtype))
        of_projected = self.attention.backward(layout, blocks, self.output.backward(mixed, of_attended))
        return of_sum + self.project.backward(x, of_projected)
