"""The live demo: starts geotrain's own commands as processes, sends requests, and reads what they left behind."""
