"""Compiled functions are cached, never run stale code, and compile where nothing can be cached."""

import gc
import importlib.util
import sys

from gramrun.base import compiled


def test_a_change_anywhere_in_the_package_invalidates_the_cache(tmp_path, monkeypatch):
    (tmp_path / "loops.py").write_text("def double(number):\n    return 2 * number\n")
    spec = importlib.util.spec_from_file_location("loops", tmp_path / "loops.py")
    loops = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loops)
    monkeypatch.setitem(sys.modules, "loops", loops)  # numba imports it where it loads the cache

    def hits_of_a_new_process():
        function = compiled.compiled(loops.double)
        assert function(3) == 6
        hits = sum(function.stats.cache_hits.values())
        del function
        gc.collect()  # a new process has nothing of the last one's
        return hits

    assert [hits_of_a_new_process() for _ in range(2)] == [0, 1]
    monkeypatch.setattr(compiled, "_package_stamp", lambda: (("gramrun/changed.py", 1, 2),))
    assert [hits_of_a_new_process() for _ in range(2)] == [0, 1]


def test_functions_run_where_numba_compiles_nothing(monkeypatch):
    monkeypatch.setattr(compiled.numba.config, "DISABLE_JIT", 1)
    assert compiled.compiled(lambda number: number + 1)(2) == 3


def test_functions_compile_where_no_folder_can_be_written(monkeypatch):
    original = compiled.numba.njit

    def njit(*arguments, **options):  # numba also decorates functions of its own with it
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return original(*arguments, **options)

    monkeypatch.setattr(compiled.numba, "njit", njit)
    assert compiled.compiled(lambda number: number + 1)(2) == 3
