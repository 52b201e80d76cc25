"""PyTorch's process: ``python -m benchmarks.cpu.torch_worker THREADS [compile]``."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch._dynamo  # which optimisers import when first used: no cost of a step
import torch.nn.functional as nnF

from benchmarks.cpu.arrays import INFERENCE, RULES, Arrays
from benchmarks.cpu.serving import serve
from benchmarks.cpu.torch_models import MODELS, Discriminator, Generator, load


def compiled(function: Any) -> Any:
    return torch.compile(function) if sys.argv[2:] == ["compile"] else function


class Training:
    def __init__(self, case: str, given: Arrays, values: Arrays) -> None:
        self.x = torch.from_numpy(given["x"])
        self.y = torch.from_numpy(given["y"]).flatten().long()
        model = MODELS[case]()
        load(model, values)
        self.optimizer = optimizer_of(case, model)

        def loss_of(x: Any, y: Any) -> Any:
            return nnF.cross_entropy(model(x).flatten(0, -2), y)

        self.loss_of = compiled(loss_of)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.loss = self.loss_of(self.x, self.y)
        self.loss.backward()
        self.optimizer.step()

    def result(self) -> list[float]:
        return [self.loss.item()]


class Adversarial:
    """The generator is trained, then the discriminator on its images."""

    def __init__(self, case: str, given: Arrays, values: Arrays) -> None:
        self.noise, self.real = (torch.from_numpy(given[name]) for name in ("noise", "real"))
        self.networks: dict[str, Any] = {"generator": Generator(), "discriminator": Discriminator()}
        for path, network in self.networks.items():
            start = f"{path}/"
            own = {n.removeprefix(start): a for n, a in values.items() if n.startswith(start)}
            load(network, own)
        self.optimizers = {name: optimizer_of(case, one) for name, one in self.networks.items()}
        self.generator = compiled(self.networks["generator"])
        self.discriminator = compiled(self.networks["discriminator"])

    def step(self) -> None:
        discriminator = self.networks["discriminator"]
        self.optimizers["generator"].zero_grad()
        discriminator.requires_grad_(False)
        fake = self.generator(self.noise)
        convincing = self.judge(fake, 1.0)
        convincing.backward()
        self.optimizers["generator"].step()

        self.optimizers["discriminator"].zero_grad()
        discriminator.requires_grad_(True)
        telling = self.judge(self.real, 1.0) + self.judge(fake.detach(), 0.0)
        telling.backward()
        self.optimizers["discriminator"].step()
        self.losses = convincing, telling

    def judge(self, images: Any, real: float) -> Any:
        scores = self.discriminator(images)
        return nnF.binary_cross_entropy_with_logits(scores, torch.full_like(scores, real))

    def result(self) -> list[float]:
        return [loss.item() for loss in self.losses]


class Inference:
    def __init__(self, case: str, given: Arrays, values: Arrays) -> None:
        self.x = torch.from_numpy(given["x"])
        model = MODELS[case]().eval()
        load(model, values)
        self.model = compiled(model)

    def step(self) -> None:
        with torch.inference_mode():
            self.y = self.model(self.x)

    def result(self) -> list[float]:
        found: list[float] = self.y.flatten().tolist()
        return found


def optimizer_of(case: str, model: Any) -> Any:
    rule = RULES[case]
    parameters = [p for p in model.parameters() if p.requires_grad]
    if rule.solver == "Adam":
        betas = rule.arguments.get("beta1", 0.9), 0.999
        return torch.optim.Adam(parameters, rule.arguments["alpha"], betas)
    return torch.optim.SGD(parameters, **rule.arguments, weight_decay=rule.decay)


def build(case: str, given: Arrays, values: Arrays) -> Training | Adversarial | Inference:
    kind = Inference if case in INFERENCE else Adversarial if case == "dcgan" else Training
    return kind(case, given, values)


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    serve(build)
