"""The items of the report: one module for each figure or table of the paper, and for each question of ours.

A module has two functions:

    tasks(plan)   -> list[Job]     the jobs that it needs now; asked again when these are done
    section(plan) -> Section       reads finished runs, draws into ``plan.folder``, and returns the section

and may have more:

    corpora(plan)    -> list[str]  data sets that it needs beside ``plan.datasets``
    make_ready(plan) -> None       work between runs; ``section`` may evaluate finished ones
    can_tell(plan)   -> bool       whether ``section`` can be called; by default, if all tasks are done
"""
