"""`python -m geotrain` is `geotrain`."""

from geotrain.cli import main

main()
