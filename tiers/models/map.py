# SPDX-License-Identifier: Apache-2.0
"""``pagetier pool map``: the map of a model's experts, made from its headers alone.

Nothing of the weights is read, copied or written.  The map is one folder with ``pool.json``;
mapping the same model into it again is how a moved or changed model is known again.
"""

import os
from pathlib import Path

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.tiers.manifest import MANIFEST_NAME
from pagetier.tiers.models import gguf, safetensors
from pagetier.tiers.models.errors import MissingShard, NotAModel
from pagetier.tiers.models.geometry import read_geometry
from pagetier.tiers.models.manifest import MappedManifest, encode_mapped, make_mapped
from pagetier.tiers.models.model import Model
from pagetier.tiers.models.pool import MappedPool
from pagetier.tiers.pool import read_pool

__all__ = ["map_model"]


def map_model(source: Path, target: Path) -> MappedPool:
    """Maps the model `source` (a file, any shard of it, or its folder) as the pool `target`.

    A ModelError says what is wrong with the model, an InputError that `target` is taken.
    """
    model = _read_model(source.absolute())
    manifest = make_mapped(model, read_geometry(model))
    _write(target, manifest)
    return MappedPool.of(target.resolve(), manifest)


def _read_model(source: Path) -> Model:
    if source.is_dir():
        names = os.listdir(source)
        found = [
            read
            for suffix, read in _FORMATS.items()
            if any(name.endswith(suffix) for name in names)
        ]
        if len(found) != 1:
            raise NotAModel(
                f"{source}: holds {'both' if found else 'neither'} GGUF "
                f"{'and' if found else 'nor'} safetensors files; name a model's "
                "file, or a folder with one model"
            )
        return found[0](source)
    if not source.exists() and not source.is_symlink():
        raise MissingShard(f"{source}: is not there; name a GGUF file or a folder of safetensors")
    read = next((read for suffix, read in _FORMATS.items() if source.name.endswith(suffix)), None)
    # By its content otherwise: files of a download cache have no suffix.
    return (read or gguf.read_gguf)(source)


_FORMATS = {gguf.SUFFIX: gguf.read_gguf, safetensors.SUFFIX: safetensors.read_safetensors}


def _write(target: Path, manifest: MappedManifest) -> None:
    """The folder of the map, new or that of an earlier map of the same model."""
    try:
        target.mkdir()
    except FileExistsError:
        _require_same_model(target, manifest)
        replace_file(target / MANIFEST_NAME, encode_mapped(manifest))
        return
    except OSError as error:
        raise InputError(
            f"{target}: the pool could not be made ({error.strerror}); make the folder that is to "
            "hold it first, or choose another place"
        ) from error
    try:
        replace_file(target / MANIFEST_NAME, encode_mapped(manifest))
    except BaseException:
        target.rmdir()
        raise


def _require_same_model(target: Path, manifest: MappedManifest) -> None:
    found = read_pool(target)
    if isinstance(found, MappedPool) and found.manifest.model.source == manifest.model.source:
        return
    raise InputError(
        f"{target}: is a pool of something else, and is never overwritten; name another path or "
        "remove it"
    )
