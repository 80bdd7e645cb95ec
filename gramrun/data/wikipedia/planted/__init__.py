"""Made wikis of any size as dumps of any generation, with their ground truth beside them.

    write_tables(SIZES["simple-scale"], folder, generation="2026")

plants links of a known two-tower model (`topics`) between pages whose titles and categories tell their
topics, lays every trap of real dumps (`pages`, `links`), and writes the tables and the folder ``truth``.
"""

from gramrun.data.wikipedia.planted.settings import SIZES, PlantedWiki
from gramrun.data.wikipedia.planted.truth import Truth, read_truth
from gramrun.data.wikipedia.planted.writing import write_tables

__all__ = ["SIZES", "PlantedWiki", "Truth", "read_truth", "write_tables"]
