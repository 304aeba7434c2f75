"""Text up to the first of some strings."""

from collections.abc import Sequence


class Stopper:
    """Lets text through until one of `strings` is complete; how the text was cut into pieces makes no difference."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = strings
        self._held = ""
        self.stopped = False

    def add(self, text: str) -> str:
        """What can be told; what may be the beginning of a string is held back."""
        if self.stopped:
            return ""
        text, self._held = self._held + text, ""
        # The first to be complete, and of several the longest.
        ends = [(text.index(string) + len(string), -len(string)) for string in self._strings if string in text]
        if ends:
            self.stopped = True
            return text[: sum(min(ends))]
        held = max((_begun(text, string) for string in self._strings), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def rest(self) -> str:
        """What was held back for nothing."""
        rest, self._held = self._held, ""
        return rest


def _begun(text: str, string: str) -> int:
    """How much of the string the text ends with."""
    return next((size for size in range(len(string) - 1, 0, -1) if text.endswith(string[:size])), 0)
