"""`python -m geotrain` is `geotrain`."""

import sys


def main() -> None:
    """Run the command; Ctrl-C while it is still being imported ends it as it does later."""
    try:
        from geotrain.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
