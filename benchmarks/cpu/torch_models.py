"""The networks of `models` as PyTorch modules, and how they take NNL's parameters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as nnF
from torch import nn

from benchmarks.cpu.arrays import Arrays
from benchmarks.cpu.models import BLOCKS, HEADS, LAYERS, LSTM_WORDS, MAPS, STATE, WIDTH, WORDS


class Perceptron(nn.Module):
    def __init__(self, *widths: int, activation: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(widths))
        self.activation = activation

    def forward(self, x: Any) -> Any:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 16, 5), nn.Conv2d(16, 32, 5)])
        self.hidden = nn.Linear(512, 128)
        self.scores = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        for convolution in self.convolutions:
            x = nnF.max_pool2d(nnF.relu(convolution(x)), 2)
        return self.scores(nnF.relu(self.hidden(x.flatten(1))))


class Normalized(nn.Module):
    """A convolution without bias, and batch normalisation."""

    def __init__(self, inputs: int, maps: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inputs, maps, kernel, stride, kernel // 2, bias=False)
        self.normalization = nn.BatchNorm2d(maps)

    def forward(self, x: Any) -> Any:
        return self.normalization(self.convolution(x))


class Residual(nn.Module):
    def __init__(self, inputs: int, *layers: tuple[int, int, int], shortcut: bool) -> None:
        super().__init__()
        self.body = nn.ModuleList()
        before, stride = inputs, 1
        for maps, kernel, step in layers:
            self.body.append(Normalized(before, maps, kernel, step))
            before, stride = maps, stride * step
        self.shortcut = Normalized(inputs, before, 1, stride) if shortcut else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = x
        for layer in self.body[:-1]:
            y = nnF.relu(layer(y))
        return nnF.relu(self.body[-1](y) + self.shortcut(x))


class ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Normalized(3, 16, 3, 1)
        self.blocks = nn.Sequential()
        before = 16
        for maps in (16, 32, 64):
            for _ in range(3):
                stride = maps // before
                layers = (maps, 3, stride), (maps, 3, 1)
                self.blocks.append(Residual(before, *layers, shortcut=stride > 1))
                before = maps
        self.scores = nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = self.blocks(nnF.relu(self.first(x)))
        return self.scores(nnF.adaptive_avg_pool2d(x, 1).flatten(1))


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = Normalized(3, 64, 7, 2)
        self.blocks = nn.Sequential()
        before = 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                maps, stride = 64 << stage, 2 if stage and not block else 1
                layers = (maps, 1, 1), (maps, 3, stride), (4 * maps, 1, 1)
                self.blocks.append(Residual(before, *layers, shortcut=not block))
                before = 4 * maps
        self.scores = nn.Linear(2048, 1000)

    def forward(self, x: Any) -> Any:
        x = nnF.max_pool2d(nnF.relu(self.first(x)), 3, 2, 1)
        return self.scores(nnF.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


class Block(nn.Module):
    """Attention and two dense layers, each normalised before and added."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.before_dense = nn.LayerNorm(WIDTH)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        parts = self.query_key_value(self.before_attention(x)).split(WIDTH, dim=2)
        query, key, value = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts
        )
        y = nnF.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, length, WIDTH))
        y = nnF.gelu(self.wide(self.before_dense(x)), approximate="tanh")
        return x + self.narrow(y)


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.positions = nn.Embedding(128, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.last = nn.LayerNorm(WIDTH)
        self.scores = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Any) -> Any:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.positions(positions)
        return self.scores(self.last(self.blocks(x)))


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(LSTM_WORDS, STATE)
        self.memory = nn.LSTM(STATE, STATE, LAYERS)
        for name, parameter in self.memory.named_parameters():
            if name.startswith("bias_hh"):  # NNL and nnabla have one bias
                nn.init.zeros_(parameter)
                parameter.requires_grad_(False)
        self.scores = nn.Linear(STATE, LSTM_WORDS)

    def forward(self, tokens: Any) -> Any:
        y, _ = self.memory(self.words(tokens))
        return self.scores(y)


class DcganLayer(nn.Module):
    def __init__(self, convolution: Any, maps: int, activation: Any) -> None:
        super().__init__()
        self.convolution = convolution
        self.normalization = nn.BatchNorm2d(maps) if maps else nn.Identity()
        self.activation = activation

    def forward(self, x: Any) -> Any:
        return self.activation(self.normalization(self.convolution(x)))


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential()
        before = 100
        for maps in (8 * MAPS, 4 * MAPS, 2 * MAPS, MAPS, 3):
            place = (1, 0) if before == 100 else (2, 1)
            convolution = nn.ConvTranspose2d(before, maps, 4, *place, bias=False)
            inner = maps > 3
            activation = nn.ReLU(inplace=True) if inner else nn.Tanh()
            self.layers.append(DcganLayer(convolution, maps if inner else 0, activation))
            before = maps

    def forward(self, noise: Any) -> Any:
        return self.layers(noise)


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential()
        before = 3
        for maps in (MAPS, 2 * MAPS, 4 * MAPS, 8 * MAPS, 1):
            place = (2, 1) if maps > 1 else (1, 0)
            convolution = nn.Conv2d(before, maps, 4, *place, bias=False)
            activation = nn.LeakyReLU(0.2, inplace=True) if maps > 1 else nn.Identity()
            normalized = maps if before > 3 and maps > 1 else 0
            self.layers.append(DcganLayer(convolution, normalized, activation))
            before = maps

    def forward(self, images: Any) -> Any:
        return self.layers(images)


MODELS: dict[str, Any] = {
    "tiny": lambda: Perceptron(2, 16, 16, 2, activation=torch.tanh),
    "mlp": lambda: Perceptron(784, 512, 512, 10, activation=nnF.relu),
    "lenet": LeNet,
    "resnet20": ResNet20,
    "resnet50": ResNet50,
    "gpt": Gpt,
    "lstm": Lstm,
    "resnet50-1": ResNet50,
    "resnet50-8": ResNet50,
}

_KINDS = {
    "W": "weight",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "mean": "running_mean",
    "var": "running_var",
}


def load(model: Any, values: Arrays) -> None:
    """Give a module the parameters that NNL names alike; raise KeyError for what is left over."""
    own = model.state_dict()
    for name, array in _translated(values).items():
        target = own.pop(name)
        target.copy_(torch.from_numpy(array).reshape(target.shape))
    left = [name for name in own if "bias_hh" not in name and "num_batches" not in name]
    if left:
        raise KeyError(f"no values for {', '.join(left)}")


def _translated(values: Arrays) -> Arrays:
    named: Arrays = {}
    for name, array in values.items():
        *path, layer, kind = name.split("/")
        prefix = ".".join(path)
        if layer != "lstm":
            value = array.T if layer == "affine" else array
            named[f"{prefix}.{_KINDS[kind]}"] = value
        elif kind == "bias":
            for number in range(LAYERS):
                named[f"{prefix}.bias_ih_l{number}"] = array[number]
        else:
            layers = array[None] if kind == "weight_l0" else array
            for number, one in enumerate(layers, start=int(kind == "weight")):
                rows = one.reshape(4 * STATE, 2 * STATE)
                named[f"{prefix}.weight_ih_l{number}"] = rows[:, :STATE]
                named[f"{prefix}.weight_hh_l{number}"] = rows[:, STATE:]
    return named
