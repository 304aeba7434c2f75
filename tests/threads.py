"""Several things at once."""

import threading
from collections.abc import Callable


def together(*work: Callable[[], object]) -> None:
    """All at once; the first error of any of them."""
    errors: list[BaseException] = []

    def run(one: Callable[[], object]) -> None:
        try:
            one()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
