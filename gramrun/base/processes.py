"""Several processes that train one model together, as torchrun starts them (torch.distributed).

Every process holds a whole replica of the parameters, the optimizer and the estimators, and the same streams
of batches, which are functions of (seed, step). Each embeds its own part of a batch; then they exchange
what the others need, and all make the same update, so that replicas stay equal to the last bit:

    Gramian batch B     each process the mean rank-one term M_p of its |B|/N members; (1/N) sum_p M_p is
                        that of B. k² numbers, whatever |B|. Estimators with caches get the rows instead.
    gradient batch B'   each process the gradient of 1/N of the mean over its |B'|/N pairs; their sum is that
                        over B'. Tables' gradients travel as those of the bags: B' rows, whatever the tables.

gloo carries what lies on the CPU, nccl what lies on GPUs, one a process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from gramrun.base.errors import GramrunError, RunError
from gramrun.base.launched import environment_number, process_count

T = TypeVar("T")

# How long a process waits for another that lives but says nothing. The first one evaluates while the others
# wait, so this is more than an evaluation takes. A process that has died is noticed at once.
_PATIENCE = timedelta(hours=1)


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them. All must call the same methods in the same order.

    Attributes:
        rank: which this one is, from 0.
        count: N, how many there are; with 1 nothing is exchanged, and tensors are given back as they are.
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and messages."""
        return self.rank == 0

    @property
    def here(self) -> int:
        """How many of them run on this machine, as torchrun says."""
        return 1 if self.count == 1 else environment_number("LOCAL_WORLD_SIZE", self.count)

    def part(self, length: int) -> slice:
        """Which of `length` rows are this process's: contiguous, in order of ranks, as even as can be."""
        return slice(self.rank * length // self.count, (self.rank + 1) * length // self.count)

    def share(self, rows: Tensor) -> Tensor:
        """What this process has to do of rows that all of them know."""
        return rows[self.part(len(rows))]

    @torch.no_grad()
    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, which have equally many each: shape (N · rows, ...)."""
        if self.count == 1:
            return rows
        rows = rows.detach().contiguous()
        whole = rows.new_empty(self.count * len(rows), *rows.shape[1:])
        with _others_at_work():
            dist.all_gather(list(whole.chunk(self.count)), rows)
        return whole

    @torch.no_grad()
    def gather_uneven(self, rows: Tensor) -> Tensor:
        """As `gather`, for processes with different numbers of rows; costs one more exchange."""
        if self.count == 1:
            return rows
        lengths = [int(n) for n in self.gather(torch.tensor([len(rows)], device=rows.device))]
        padded = rows.new_zeros(max(lengths), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = self.gather(padded).split(max(lengths)) if max(lengths) else ()
        return torch.cat([rows[:0], *(part[:n] for part, n in zip(parts, lengths, strict=False))])

    @torch.no_grad()
    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over the processes, elementwise: the same bits in all of them."""
        if self.count == 1:
            return tensor
        total = tensor.detach().clone()
        with _others_at_work():
            dist.all_reduce(total)
        return total

    def mean(self, tensor: Tensor) -> Tensor:
        """The mean over the processes, elementwise: the same bits in all of them."""
        return self.sum(tensor) / self.count if self.count > 1 else tensor

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace the gradients of `parameters` by their sums over the processes.

        Dense ones travel together. Of sparse ones, whose rows differ from process to process, all rows are
        gathered.
        """
        if self.count == 1:
            return
        given = [p for p in parameters if p.grad is not None]
        dense = [p.grad for p in given if p.grad is not None and not p.grad.is_sparse]
        if dense:
            sums = self.sum(torch.cat([gradient.flatten() for gradient in dense]))
            for gradient, total in zip(dense, sums.split([g.numel() for g in dense]), strict=True):
                gradient.copy_(total.view_as(gradient))
        for p in given:
            if p.grad is not None and p.grad.is_sparse:
                rows = self.gather_uneven(p.grad._indices().T).T
                values = self.gather_uneven(p.grad._values())
                p.grad = torch.sparse_coo_tensor(rows, values, p.grad.shape)

    def any(self, *here: bool) -> tuple[bool, ...]:
        """Of each flag, whether it is set in any process, in one exchange: all get the same answers."""
        if self.count == 1:
            return here
        return tuple(bool(total) for total in self.sum(torch.tensor(here, dtype=torch.float32)))

    def from_first(self, make: Callable[[], T]) -> T:
        """What `make`, a function that only the first process calls, gives: something small, to all."""
        if self.count == 1:
            return make()
        made = [make() if self.first else None]
        with _others_at_work():
            dist.broadcast_object_list(made, device=torch.device("cpu"))
        return made[0]  # type: ignore[return-value]

    def wait(self) -> None:
        """Go on when all processes have come here."""
        self.any(False)


ALONE = Processes()


@contextlib.contextmanager
def _others_at_work() -> Iterator[None]:
    """Say of an exchange that failed what a user can know: another process is gone."""
    try:
        yield
    except RuntimeError as error:
        raise RunError(
            "lost the other processes of this run, one of which has ended or stands still"
        ) from error


def started_together() -> bool:
    """Whether torchrun, or another launcher with its environment variables, has started several processes.

    Raises:
        InputError: when its variables hold no numbers.
    """
    if "RANK" not in os.environ or process_count() <= 1:
        return False
    environment_number("RANK", 0)  # torch would refuse it in Python's words
    return True


@contextlib.contextmanager
def joined() -> Iterator[Processes]:
    """Meet the other processes that torchrun has started; alone where there are none.

    An error in one process ends all. One process tells it; for the others, which fail because of it or in the
    same way, this raises `SystemExit` without a word.

    Raises:
        RunError: when the processes cannot find one another.
    """
    if not started_together():
        yield ALONE
        return
    cuda = torch.cuda.is_available()
    if cuda:
        gpus, wanted = torch.cuda.device_count(), environment_number("LOCAL_WORLD_SIZE", 1)
        if wanted > gpus:
            raise RunError(
                f"{wanted} processes need a GPU each and {gpus} are here; start fewer, or hide them all with "
                "CUDA_VISIBLE_DEVICES= to train on the CPU"
            )
        torch.cuda.set_device(environment_number("LOCAL_RANK", 0))
    try:
        store, rank, count = next(rendezvous("env://", timeout=_PATIENCE))
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        exchange = PrefixStore("exchange", store)
        dist.init_process_group(backend, store=exchange, rank=rank, world_size=count, timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise RunError(f"the processes of this run cannot find one another: {reason}") from error
    try:
        yield Processes(rank, count)
    except BaseException as error:
        _ignore_signals()
        code = getattr(error, "exit_code", None)  # a `GramrunError` or an `Interrupted`
        interrupted = code is not None and not isinstance(error, GramrunError)
        if (interrupted and rank > 0) or not _speaks_first(store, rank):
            raise SystemExit(1 if code is None else code) from None
        raise
    finally:
        dist.destroy_process_group()


def _ignore_signals() -> None:
    """Let the launcher, which ends all when it sees one end, not interrupt one that is about to end."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _speaks_first(store: Store, rank: int) -> bool:
    """Whether no other process has told an error before this one; the first process is let go first."""
    try:
        for _ in range(10 if rank > 0 else 0):
            if store.check(["speaker"]):
                break
            time.sleep(0.1)
        return bool(store.compare_set("speaker", "", str(rank)) == str(rank).encode())
    except RuntimeError:
        return True  # where the store was lies in the first process, and that is gone
