"""The published claims done again with this software, and beside each what came out."""

from geotrain.reproduction.experiment import Chart, Claim, Experiment, chosen, load, names
from geotrain.reproduction.finding import Finding
from geotrain.reproduction.runner import Outcome, play
from geotrain.reproduction.verdict import Verdict

__all__ = ["Chart", "Claim", "Experiment", "Finding", "Outcome", "Verdict", "chosen", "load", "names", "play"]
