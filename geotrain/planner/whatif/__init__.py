"""What-if: the planner over a grid of changed clusters and jobs, or over one of the built-in stories."""

from geotrain.planner.whatif.exploration import Exploration, Row, Story, plain_grid
from geotrain.planner.whatif.grid import Axis, Point, Setting, grid, parse_axis
from geotrain.planner.whatif.notebook import Notebook
from geotrain.planner.whatif.outcome import Found, NothingFits, Outcome, plan_for
from geotrain.planner.whatif.stories import STORIES, find_story
from geotrain.planner.whatif.workers import InProcess, Processes, Ray, Workers

__all__ = [
    "STORIES",
    "Axis",
    "Exploration",
    "Found",
    "InProcess",
    "Notebook",
    "NothingFits",
    "Outcome",
    "Point",
    "Processes",
    "Ray",
    "Row",
    "Setting",
    "Story",
    "Workers",
    "find_story",
    "grid",
    "parse_axis",
    "plain_grid",
    "plan_for",
]
