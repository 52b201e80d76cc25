"""The networks, in the functions that NNL and nnabla share: whoever builds one passes its engine.

Scopes bear the names of the modules in `torch_worker`, so that parameters are found by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Engine(NamedTuple):
    """What of NNL or of nnabla a network is built from."""

    F: Any
    PF: Any
    scope: Callable[[str], Any]
    constant: Callable[[Any], Any]  # a variable of an array
    causal_attention: Callable[[Any, Any, Any], Any]  # of (batch, heads, tokens, channels)


def tiny(n: Engine, x: Any) -> Any:
    """Return the scores of a perceptron of two hidden layers of 16, tanh between."""
    return _perceptron(n, x, (16, 16, 2), n.F.tanh)


def mlp(n: Engine, x: Any) -> Any:
    """Return the scores of a perceptron of two hidden layers of 512, relu between."""
    return _perceptron(n, x, (512, 512, 10), n.F.relu)


def _perceptron(n: Engine, x: Any, widths: tuple[int, ...], activation: Any) -> Any:
    for number, width in enumerate(widths):
        x = activation(x) if number else x
        x = n.PF.affine(x, width, name=f"layers/{number}")
    return x


def lenet(n: Engine, x: Any) -> Any:
    """Return the scores of two convolutions with pooling and two dense layers."""
    for number, maps in enumerate((16, 32)):
        x = n.PF.convolution(x, maps, (5, 5), name=f"convolutions/{number}")
        x = n.F.max_pooling(n.F.relu(x), (2, 2))
    x = n.F.relu(n.PF.affine(x, 128, name="hidden"))
    return n.PF.affine(x, 10, name="scores")


# Residual networks --------------------------------------------------------------------------------


def _convolution(n: Engine, x: Any, maps: int, kernel: int, stride: int, training: bool) -> Any:
    """Convolve and normalise; the scope is the caller's."""
    pad = (kernel // 2,) * 2
    x = n.PF.convolution(
        x, maps, (kernel, kernel), pad, (stride, stride), with_bias=False, name="convolution"
    )
    return n.PF.batch_normalization(x, batch_stat=training, name="normalization")


def resnet20(n: Engine, x: Any) -> Any:
    """Return the scores of He et al.'s network of 20 layers for small images, while it trains."""
    with n.scope("first"):
        x = n.F.relu(_convolution(n, x, 16, 3, 1, True))
    for stage, maps in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage and not block else 1
            y = x
            with n.scope(f"blocks/{3 * stage + block}"):
                for number, step in enumerate((stride, 1)):
                    with n.scope(f"body/{number}"):
                        y = _convolution(n, n.F.relu(y) if number else y, maps, 3, step, True)
                if stride > 1:
                    with n.scope("shortcut"):
                        x = _convolution(n, x, maps, 1, stride, True)
            x = n.F.relu(x + y)
    return n.PF.affine(n.F.global_average_pooling(x), 10, name="scores")


def resnet50(n: Engine, x: Any, training: bool = True) -> Any:
    """Return the scores of He et al.'s network of 50 layers; by running statistics if it infers."""
    with n.scope("first"):
        x = n.F.relu(_convolution(n, x, 64, 7, 2, training))
    x = n.F.max_pooling(x, (3, 3), (2, 2), pad=(1, 1))
    number = 0
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            maps, stride = 64 << stage, 2 if stage and not block else 1
            y = x
            with n.scope(f"blocks/{number}"):
                layers = ((maps, 1, 1), (maps, 3, stride), (4 * maps, 1, 1))
                for place, layer in enumerate(layers):
                    with n.scope(f"body/{place}"):
                        y = _convolution(n, n.F.relu(y) if place else y, *layer, training)
                if not block:
                    with n.scope("shortcut"):
                        x = _convolution(n, x, 4 * maps, 1, stride, training)
            x = n.F.relu(x + y)
            number += 1
    return n.PF.affine(n.F.global_average_pooling(x), 1000, name="scores")


# Sequences ----------------------------------------------------------------------------------------

WORDS, WIDTH, HEADS, BLOCKS = 256, 128, 4, 4


def gpt(n: Engine, tokens: Any) -> Any:
    """Return the scores (batch, tokens, words) of a small decoder with learnt positions."""
    batch, length = tokens.shape
    positions = n.constant(range(length))
    x = n.PF.embed(tokens, WORDS, WIDTH, name="words")
    x = x + n.F.reshape(n.PF.embed(positions, length, WIDTH, name="positions"), (1, length, WIDTH))
    for block in range(BLOCKS):
        with n.scope(f"blocks/{block}"):
            y = n.PF.layer_normalization(x, (0, 1), name="before_attention")
            y = n.PF.affine(y, 3 * WIDTH, base_axis=2, name="query_key_value")
            y = n.F.reshape(y, (batch, length, 3, HEADS, WIDTH // HEADS))
            query, key, value = n.F.split(n.F.transpose(y, (2, 0, 3, 1, 4)), axis=0)
            y = n.F.transpose(n.causal_attention(query, key, value), (0, 2, 1, 3))
            y = n.F.reshape(y, (batch, length, WIDTH))
            x = x + n.PF.affine(y, WIDTH, base_axis=2, name="projection")
            y = n.PF.layer_normalization(x, (0, 1), name="before_dense")
            y = n.F.gelu(n.PF.affine(y, 4 * WIDTH, base_axis=2, name="wide"))
            x = x + n.PF.affine(y, WIDTH, base_axis=2, name="narrow")
    x = n.PF.layer_normalization(x, (0, 1), name="last")
    return n.PF.affine(x, WORDS, base_axis=2, with_bias=False, name="scores")


LSTM_WORDS, STATE, LAYERS = 1000, 200, 2


def lstm(n: Engine, tokens: Any) -> Any:
    """Return the scores (tokens, batch, words) of two layers of long short-term memory."""
    batch = tokens.shape[1]
    x = n.PF.embed(tokens, LSTM_WORDS, STATE, name="words")
    zeros = [n.F.constant(0, (LAYERS, 1, batch, STATE)) for _ in range(2)]
    y, _, _ = n.PF.lstm(x, *zeros, num_layers=LAYERS, name="memory")
    return n.PF.affine(y, LSTM_WORDS, base_axis=2, name="scores")


# Images from noise --------------------------------------------------------------------------------

MAPS = 64


def generator(n: Engine, noise: Any) -> Any:
    """Return images (batch, 3, 64, 64) made of noise (batch, 100, 1, 1)."""
    x = noise
    with n.scope("generator"):
        for number, maps in enumerate((8 * MAPS, 4 * MAPS, 2 * MAPS, MAPS, 3)):
            pad, stride = ((1, 1), (2, 2)) if number else ((0, 0), (1, 1))
            with n.scope(f"layers/{number}"):
                x = n.PF.deconvolution(
                    x, maps, (4, 4), pad, stride, with_bias=False, name="convolution"
                )
                if number < 4:
                    x = n.F.relu(n.PF.batch_normalization(x, name="normalization"))
        return n.F.tanh(x)


def discriminator(n: Engine, x: Any) -> Any:
    """Return a score (batch, 1, 1, 1) of each image: whether it is real."""
    with n.scope("discriminator"):
        for number, maps in enumerate((MAPS, 2 * MAPS, 4 * MAPS, 8 * MAPS, 1)):
            pad, stride = ((1, 1), (2, 2)) if number < 4 else ((0, 0), (1, 1))
            with n.scope(f"layers/{number}"):
                x = n.PF.convolution(
                    x, maps, (4, 4), pad, stride, with_bias=False, name="convolution"
                )
                if 0 < number < 4:
                    x = n.PF.batch_normalization(x, name="normalization")
                if number < 4:
                    x = n.F.leaky_relu(x, 0.2)
        return x
