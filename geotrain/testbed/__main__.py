"""`python -m geotrain.testbed`: the process that `launch` starts."""

from geotrain.testbed.keeper import main

main()
