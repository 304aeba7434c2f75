"""The best possible step of a small case: the simulator's rules as a constraint model, solved with proof.

An oracle for tests and for judging heuristics; needs OR-Tools (the extra `exact`). It searches all schedules at once:
any order of actions on a slot, backward split or not, any order of transfers on a channel, any boundaries pooled.
Only a link whose capacity binds is beyond it.

`best` asks for every choice of boundaries to pool; for each, `case` holds the numbers and what is known beforehand,
`model` the variables and constraints, `answer` runs the solver and reads a schedule back.
"""

from geotrain.simulation.exact.best import Exact, solve

__all__ = ["Exact", "solve"]
