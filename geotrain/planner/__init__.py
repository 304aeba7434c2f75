"""Which data centers, which degrees of parallelism, how many layers per stage: the best plan for a job."""

from geotrain.planner.answer import Answer, Ending, Progress, Scored
from geotrain.planner.ask import Across, Ask, Goal
from geotrain.planner.search import find_plan

__all__ = ["Across", "Answer", "Ask", "Ending", "Goal", "Progress", "Scored", "find_plan"]
