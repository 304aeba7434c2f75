"""What a real path gives: probing it into a cluster file, and timing transfers of training size on the testbed.

Knows the transport, the testbed and the simulator's prediction for a link; knows nothing about schedules or plans.
"""
