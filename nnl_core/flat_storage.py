"""Flat storage: many arrays of one dtype in one contiguous block of memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from nnl_core.errors import ParameterError
from nnl_core.graph.array import NdArray
from nnl_core.graph.backend import Buffer, DeviceBackend, current_backend
from nnl_core.graph.flat import layout
from nnl_core.graph.operator import Array
from nnl_core.graph.spec import Spec
from nnl_core.graph.structure import Structure
from nnl_core.graph.variable import Variable

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


class FlatBlock:
    """One block of memory with a place for each of several storages of one dtype.

    On a backend that is not on the host the block lies on its device, and so do the places.

    Attributes
    ----------
    storage
        the whole block as one flat array; gaps between places are zero
    places
        (start, stop) of each storage in it, in elements
    """

    def __init__(self, specs: Sequence[Spec]) -> None:
        dtype = specs[0].dtype
        self.places, length = layout(spec.size for spec in specs)
        memory = _aligned_zeros(length, dtype)
        self.storage = NdArray(Spec((length,), dtype), memory)
        self._homes = [
            memory[start:stop].reshape(spec.shape)
            for (start, stop), spec in zip(self.places, specs, strict=True)
        ]
        self._specs = list(specs)
        self._device: DeviceBackend | None = None
        self._parts: list[Buffer] = []  # the places on it

    def take(self, members: list[NdArray]) -> NdArray:
        """Return `storage` with what the members (of the block's specs, in order) hold now.

        Those that are elsewhere are moved to their places, and stay there. Raises `ClearedError`
        where the memory of one was released.
        """
        backend = current_backend()
        # Asked first, for it is quick: looking at a protocol takes longer than a small step.
        if not backend.on_host and isinstance(backend, DeviceBackend):
            if self._device is not backend:
                self._settle(backend)
            for member, home, part in zip(members, self._homes, self._parts, strict=True):
                member.relocate_buffer(backend, part, home)
            self.storage.mark_written(backend)
            return self.storage
        for member, home in zip(members, self._homes, strict=True):
            if member.read() is not home:
                member.relocate(home)
        self.storage.touch()
        return self.storage

    def publish(self, members: list[NdArray]) -> None:
        """Give the members what `storage` holds, wherever they were."""
        device = self._device
        if device is not None and self.storage.is_on(device):
            for member, home, part in zip(members, self._homes, self._parts, strict=True):
                member.adopt_buffer(device, part, home)
            return
        self.storage.read()
        for member, home in zip(members, self._homes, strict=True):
            member.adopt(home)

    def _settle(self, backend: DeviceBackend) -> None:
        """Have the block on a backend's device."""
        block = self.storage.buffer(backend)
        self._parts = [
            backend.part(block, start, spec)
            for (start, _), spec in zip(self.places, self._specs, strict=True)
        ]
        self._device = backend

    def part(self, position: int) -> Array:
        """Return one place as an array of its member's shape, sharing memory."""
        self.storage.read()
        return self._homes[position]


class FlatStorage:
    """Data and gradients of parameters of one dtype, each in one contiguous block.

    The parameters stay what they are: assignments, programs and `backward` work in the blocks. What
    was moved elsewhere since (by another flat storage, or by ``parameter.data = ...``) is moved
    back when it is collected. Collect before reading or writing a block, publish after writing.
    """

    def __init__(self, parameters: Mapping[str, Variable]) -> None:
        if not parameters:
            raise ParameterError("flat storage needs at least one parameter")
        dtypes = {str(parameter.dtype): name for name, parameter in parameters.items()}
        if len(dtypes) > 1:
            listed = ", ".join(f"{name!r} is {dtype}" for dtype, name in dtypes.items())
            raise ParameterError(f"flat storage holds one dtype: {listed}; make one for each")
        self.parameters = dict(parameters)
        self.specs = {name: parameter.spec for name, parameter in parameters.items()}
        self._data = FlatBlock(list(self.specs.values()))
        self._grad = FlatBlock(list(self.specs.values()))
        self.segments: dict[str, tuple[int, int]] = dict(
            zip(parameters, self._data.places, strict=True)
        )
        self._data_variable = Variable.on(self._data.storage)
        self._grad_variable = Variable.on(self._grad.storage)
        self._members: list[NdArray] = []
        self._listed = list(parameters.values())
        self._gradients = [parameter.grad for parameter in self._listed]
        self._version = -1
        self.collect_data()
        self.collect_gradients()

    @classmethod
    def by_dtype(cls, parameters: Mapping[str, Variable]) -> list[FlatStorage]:
        """Make one flat storage for each dtype among the parameters."""
        groups: dict[np.dtype, dict[str, Variable]] = {}
        for name, parameter in parameters.items():
            groups.setdefault(parameter.dtype, {})[name] = parameter
        return [cls(group) for group in groups.values()]

    @property
    def data(self) -> Variable:
        """The flat block of all elements."""
        return self._data_variable

    @property
    def grad(self) -> Variable:
        """The flat block of all gradients."""
        return self._grad_variable

    def fits(self, parameters: Mapping[str, Variable]) -> bool:
        """Whether these are the parameters held here, in the same order and of the same shapes."""
        return list(parameters) == list(self.parameters) and all(
            new is old and new.spec == spec
            for new, old, spec in zip(
                parameters.values(), self.parameters.values(), self.specs.values(), strict=True
            )
        )

    def collect_data(self) -> NdArray:
        """Return the flat data with what the parameters hold now."""
        return self._data.take(self._data_members())

    def collect_gradients(self) -> NdArray:
        """Return the flat gradients with what the parameters' gradients hold now."""
        return self._grad.take(self._grad_members())

    def publish_data(self) -> None:
        """Give the parameters what the flat data holds."""
        self._data.publish(self._data_members())

    def publish_gradients(self) -> None:
        """Give the parameters' gradients what the flat gradients hold."""
        self._grad.publish(self._grad_members())

    def _data_members(self) -> list[NdArray]:
        if self._version != Structure.version:  # else no parameter has got another storage
            self._members = [parameter.data for parameter in self.parameters.values()]
            self._version = Structure.version
        return self._members

    def _grad_members(self) -> list[NdArray]:
        # Asking each variable would make those that have no gradient yet: once is enough.
        members = self._gradients
        for position, parameter in enumerate(self._listed):
            if parameter._grad is not members[position]:
                members[position] = parameter.grad
        return members

    def gradient_parts(self) -> Iterable[tuple[str, Array]]:
        """Yield each parameter's gradient as an array that shares memory with the block."""
        for position, name in enumerate(self.parameters):
            yield name, self._grad.part(position)


def _aligned_zeros(length: int, dtype: np.dtype) -> Array:
    raw = np.zeros(length * dtype.itemsize + _ALIGNMENT, np.uint8)
    shift = -raw.ctypes.data % _ALIGNMENT
    return raw[shift : shift + length * dtype.itemsize].view(dtype)
