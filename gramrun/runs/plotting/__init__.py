r"""The paper's curves: a pandas frame in, a matplotlib figure out. No model and no torch.

=============================  ====================================================================
figure of the paper            function
=============================  ====================================================================
MAP@10 curves (4.3, app. E)    :func:`map_figure`
Gramian error (4.2)            :func:`gram_error_figure`
trade-off in alpha (4.2)       :func:`trade_off_figure`
inner products (appendix B)    :func:`inner_products_figure`
MAP against gravity (app. B)   :func:`gravity_figure`
error for several eta (app. D) :func:`learning_rates_figure`
none: Proposition 5, measured  :func:`theory_figure`
=============================  ====================================================================
"""

from gramrun.runs.plotting.curves import gram_error_figure, map_figure, trade_off_figure
from gramrun.runs.plotting.inner_products import gravity_figure, inner_products_figure
from gramrun.runs.plotting.learning_rates import learning_rates_figure
from gramrun.runs.plotting.panels import save
from gramrun.runs.plotting.theory import theory_figure

__all__ = [
    "gram_error_figure",
    "gravity_figure",
    "inner_products_figure",
    "learning_rates_figure",
    "map_figure",
    "save",
    "theory_figure",
    "trade_off_figure",
]
