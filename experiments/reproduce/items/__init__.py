"""The experiments of the report: a module for each figure and table of the paper, and for each of ours.

Each has two functions:

    tasks(plan)   -> list[Job]     the runs and scripts that it needs now; asked again when these are done, so
                                   that it may first search and then run what was found
    section(plan) -> Section       reads finished runs, draws into ``plan.folder`` and tells what came out

and may have more:

    corpora(plan)    -> list[str]  data sets that it needs beside ``plan.datasets``
    make_ready(plan) -> None       what must be done between runs; ``tasks`` and ``section`` only read
    can_tell(plan)   -> bool       whether ``section`` has anything to tell; else, if all tasks are done

`python -m experiments.reproduce` runs the tasks of all items of a profile together and writes the report.
"""
