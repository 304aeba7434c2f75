"""Weights as safetensors files with Hugging Face names: reading those of a part, writing those of a model."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from geotrain.errors import InputError, RunError
from geotrain.files import open_regular, read_text
from geotrain.model.config import Config
from geotrain.model.llama import Part, shapes, stored_name
from geotrain.units import plural

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"

_DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}


def load(part: Part, directory: Path) -> None:
    """Fill the part from model.safetensors, or the files of model.safetensors.index.json; the rest is not read."""
    files = _files(directory)
    _check_names(files, part.config, directory)
    wanted = {stored_name(part.config, name): parameter for name, parameter in part.named_parameters()}
    for file in sorted({files[name] for name in wanted}):
        with torch.no_grad(), _opened(file) as tensors:
            for name, parameter in wanted.items():
                if files[name] == file:
                    parameter.copy_(_tensor(tensors, file, name, tuple(parameter.shape)))


def check(directory: Path, config: Config) -> None:
    """InputError if these are not the weights of such a model; no tensor is read."""
    files = _files(directory)
    _check_names(files, config, directory)
    wanted = shapes(config)
    for file in sorted({files[name] for name in wanted}):
        with _opened(file) as tensors:
            for name, shape in wanted.items():
                if files[name] == file:
                    _check_tensor(tensors, file, name, shape)


def save(
    directory: Path, config: Config, tensors: Iterable[tuple[str, Tensor]], *, dtype: torch.dtype = torch.float32
) -> None:
    """Write config.json and model.safetensors, each as a whole or not at all.

    The model's tensors come one at a time, in any order, so they need not fit into memory together. A tied head may be
    among them and is left out.
    """
    config.save(directory / "config.json")
    left = shapes(config)
    header, starts = _header(left, dtype)
    path = directory / FILE
    with _writing(path) as file:
        file.write(header)
        for name, tensor in tensors:
            if stored_name(config, name) != name:
                continue
            shape = left.pop(name, None)
            if shape != tuple(tensor.shape):
                expected = f"must be {list(shape)}" if shape else "is not expected, or not again"
                raise InputError(f"{path}: tensor {name!r} of shape {list(tensor.shape)} {expected}")
            file.seek(starts[name])
            file.write(tensor.detach().to("cpu", dtype).contiguous().view(torch.uint8).numpy().data)
        if left:
            raise InputError(f"{path}: {_listed(left)} was not given")


def _files(directory: Path) -> dict[str, Path]:
    """Where each tensor is."""
    single, index = directory / FILE, directory / INDEX
    if single.exists():
        with _opened(single) as tensors:
            return dict.fromkeys(tensors.keys(), single)
    if not index.exists():
        raise InputError(f"{directory}: has neither {FILE} nor {INDEX}")
    try:
        return {str(name): directory / file for name, file in json.loads(read_text(index))["weight_map"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(f"{index}: must be JSON with a weight_map of tensors and their files") from None


def _check_names(files: Mapping[str, Path], config: Config, directory: Path) -> None:
    if config.num_hidden_layers > len(files):  # Else naming all that a wrong number asks for would take for ever.
        layers = plural(config.num_hidden_layers, "layer")
        raise InputError(f"{directory}: has {plural(len(files), 'tensor')}, too few for a model of {layers}")
    expected = shapes(config).keys()
    if missing := expected - files.keys():
        raise InputError(
            f"{directory}: {_listed(missing)} is missing, for a model of {plural(config.num_hidden_layers, 'layer')}"
        )
    # Old files also keep the frequencies of the rotary positions, or a tied head a second time.
    extra = {name for name in files.keys() - expected if not name.endswith(".inv_freq")}
    if extra := {name for name in extra if stored_name(config, name) == name}:
        raise InputError(
            f"{directory}: {_listed(extra)} does not belong to a {config.model_type} of "
            f"{plural(config.num_hidden_layers, 'layer')}"
        )


def _listed(names: Iterable[str]) -> str:
    first, *rest = sorted(names)
    return f"tensor {first!r}" + (f" (and {len(rest)} more)" if rest else "")


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The tensors of a file; whatever is wrong with it, a sentence says so."""
    try:
        # safetensors would wait for whatever writes into a pipe.
        open_regular(file).close()
        with safe_open(file, framework="pt") as tensors:
            yield tensors
    except FileNotFoundError:
        raise InputError(f"{file}: no such file") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(f"{file}: not valid safetensors: {error}") from None


def _tensor(tensors: Any, file: Path, name: str, shape: tuple[int, ...]) -> Tensor:
    _check_tensor(tensors, file, name, shape)
    tensor: Tensor = tensors.get_tensor(name)
    return tensor


def _check_tensor(tensors: Any, file: Path, name: str, shape: tuple[int, ...]) -> None:
    found = tensors.get_slice(name)
    if tuple(found.get_shape()) != shape:
        raise InputError(f"{file}: tensor {name!r} has the shape {found.get_shape()} and must have {list(shape)}")
    if found.get_dtype() not in _DTYPES.values():
        raise InputError(f"{file}: tensor {name!r} is {found.get_dtype()} and must be {' or '.join(_DTYPES.values())}")


def _header(tensors: Mapping[str, tuple[int, ...]], dtype: torch.dtype) -> tuple[bytes, dict[str, int]]:
    """The first bytes of a safetensors file, and where each tensor's bytes begin."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in tensors.items():
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": _DTYPES[dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    return len(text).to_bytes(8, "little") + text, {name: start + entries[name]["data_offsets"][0] for name in tensors}


@contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name once it is complete and on the disk."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
