# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with weight files, by name; every message says where and what to do."""

from pagetier.analysis.errors import InputError

__all__ = [
    "ChangedFile",
    "DamagedHeader",
    "DenseModel",
    "DuplicateTensor",
    "GeometryMismatch",
    "MissingShard",
    "MissingTensor",
    "ModelError",
    "NotAModel",
    "OverlappingTensors",
    "PointerFile",
    "TruncatedFile",
    "UnevenStack",
    "UnknownTensor",
]


class ModelError(InputError):
    """Weight files that cannot be a pool."""


class NotAModel(ModelError):
    """Neither GGUF nor safetensors, or more than one model."""


class PointerFile(ModelError):
    """A Git LFS pointer, or a link that leads nowhere, where the weights should be."""


class DamagedHeader(ModelError):
    """A header that breaks its format, or asks for more than any model has."""


class TruncatedFile(ModelError):
    """A tensor that ends behind the end of its file: the download is not complete."""


class ChangedFile(ModelError):
    """A weight file that is not the one that was mapped, or that changes under our eyes."""


class MissingShard(ModelError):
    """A file of the model that is not there."""


class MissingTensor(ModelError):
    """A tensor that others of its layer, or the index, say should be there."""


class DuplicateTensor(ModelError):
    """Two tensors of one name, or two that claim to be the same part of an expert."""


class OverlappingTensors(ModelError):
    """Two tensors that share bytes."""


class UnevenStack(ModelError):
    """A stack of experts that cannot be cut into one whole slice per expert."""


class GeometryMismatch(ModelError):
    """Metadata and tensors that contradict each other."""


class UnknownTensor(ModelError):
    """An expert's tensor of a name or a type that this pagetier does not know."""


class DenseModel(ModelError):
    """A model without experts."""
