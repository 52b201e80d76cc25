"""A step that runs one oneDNN primitive, and descriptors of what it is given."""

from __future__ import annotations

from collections.abc import Mapping

from nnl_native import onednn
from nnl_native.kernel import Emission, Operand, PrimitiveStep, Reference


def run(primitive: onednn.Primitive, operands: Mapping[int, Reference]) -> Emission:
    """Return what runs a primitive on operands by argument number; its scratch memory is added."""
    arguments = [
        (number, reference, primitive.descriptors[number]) for number, reference in operands.items()
    ]
    scratch: tuple[int, ...] = ()
    if primitive.scratchpad.nbytes:
        arguments.append((onednn.SCRATCHPAD, "tmp0", primitive.scratchpad))
        scratch = (primitive.scratchpad.nbytes,)
    return Emission((PrimitiveStep(primitive, tuple(arguments)),), scratch)


def descriptor(operand: Operand, like: onednn.Descriptor | None = None) -> onednn.Descriptor:
    """Describe a value to oneDNN; a weight of groups as ``like``, which has their axis first."""
    if operand.layout.opaque is not None:
        return operand.layout.opaque
    shape, strides = operand.shape, operand.strides
    if like is not None and len(like.shape) == len(shape) + 1:
        shape, strides = like.shape, (strides[0] * like.shape[1], *strides)
    return onednn.Descriptor.strided(shape, strides, operand.dtype.name)
