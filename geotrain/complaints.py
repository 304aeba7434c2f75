"""Turning what pydantic found wrong into one sentence that names the field, the value and the limit.

Knows how pydantic reports; knows neither files nor what the fields mean.
A validator of a field ends its sentence for it ("must be above 0"); one of a whole model speaks a sentence of its own.
"""

import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from geotrain.hints import hint, nearest

_LIMITS = {
    "greater_than": "above {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "below {lt:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "a mapping of fields",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}
"""What would have been right, by pydantic's type of error."""

_UNKNOWN_FIELD = ("extra_forbidden", "invalid_key")

_SHORT = reprlib.Repr()
_SHORT.maxstring = 80


@dataclass(frozen=True, kw_only=True)
class _Problem:
    """One place that is wrong, with every reason given for it: a union gives one for each branch."""

    path: tuple[int | str, ...]
    models: list[type[BaseModel]]
    """What could have stood at this place, or around it where the field itself is unknown."""
    errors: list[ErrorDetails]


def complaint(error: ValidationError, model: type[BaseModel]) -> str:
    """The problem that says most, and a count of the others."""
    problems = _problems(error, model)
    more = len(problems) - 1
    return _sentence(problems[0]) + (f" (and {more} more problem{'s' * (more > 1)})" if more else "")


def _problems(error: ValidationError, model: type[BaseModel]) -> list[_Problem]:
    found: dict[tuple[int | str, ...], _Problem] = {}
    for details in error.errors():
        path, models = _place(details, model)
        found.setdefault(path, _Problem(path=path, models=models, errors=[])).errors.append(details)
    # A complaint about a place and one about its inside are two branches of a union: the inner one was meant.
    outer = {path[:length] for path in found for length in range(len(path))}
    inner = [problem for path, problem in found.items() if path not in outer]
    # A misspelled field is also a missing one: the misspelling says more.
    return sorted(inner, key=lambda problem: problem.errors[0]["type"] not in _UNKNOWN_FIELD)


def _place(details: ErrorDetails, model: type[BaseModel]) -> tuple[tuple[int | str, ...], list[type[BaseModel]]]:
    """The path as written in the file, without pydantic's names of union branches, and the models found there."""
    path: list[int | str] = []
    models = [model]
    unknown = details["type"] in _UNKNOWN_FIELD
    for part in details["loc"][:-1] if unknown else details["loc"]:
        annotations = [_fields(candidate)[part] for candidate in models if part in _fields(candidate)]
        if isinstance(part, int):
            path.append(part)
        elif annotations:
            path.append(part)
            found = [inside for annotation in annotations for inside in _models_in(annotation)]
            models = list(dict.fromkeys(found))
    if unknown:
        path.append(str(details["loc"][-1]))
    return tuple(path), models


def _fields(model: type[BaseModel]) -> dict[int | str, Any]:
    """Annotations by the names people write."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models_in(argument)]


def _sentence(problem: _Problem) -> str:
    field = _written(problem.path)
    first = problem.errors[0]
    value = first["input"]
    if first["type"] == "missing":
        return f"{field} is missing"
    if first["type"] in _UNKNOWN_FIELD:
        known = [str(name) for model in problem.models for name in _fields(model)]
        return f"{field} is not a known field: {hint(str(problem.path[-1]), known)}"
    if problem.models and isinstance(value, Mapping):
        return f"{field}: {_reason(problem)}" if field else _reason(problem)
    return f"{field} is {shown(value)} and {_reason(problem)}"


def _written(path: tuple[int | str, ...]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_short(part)}" for part in path)
    return text.removeprefix(".")


def _short(name: str) -> str:
    return name if len(name) <= _SHORT.maxstring else f"{name[: _SHORT.maxstring]}..."


def shown(value: object) -> str:
    """The value as a sentence can name it, shortened."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return _SHORT.repr(value) if isinstance(value, str | int | float) else str(value)


def _reason(problem: _Problem) -> str:
    for details in problem.errors:
        if details["type"] == "value_error":
            return str(details["ctx"]["error"])
    limits = dict.fromkeys(_limit(details) for details in problem.errors)
    return f"must be {' or '.join(limits)}{_near(problem)}"


def _limit(details: ErrorDetails) -> str:
    form = _LIMITS.get(details["type"])
    return form.format(**details.get("ctx", {})) if form else f"valid: {details['msg']}"


def _near(problem: _Problem) -> str:
    value = problem.errors[0]["input"]
    choices = [details["ctx"]["expected"] for details in problem.errors if details["type"] == "literal_error"]
    near = nearest(value, re.findall(r"'([^']*)'", " ".join(choices))) if isinstance(value, str) else []
    return f": did you mean {near[0]!r}?" if near else ""
