"""Data-parallel training by N processes that torchrun starts (torch.distributed).

Every process holds a whole replica of the parameters, the optimizer and the estimators (tables may be split:
`gramrun.model.row_wise`), and the same streams of batches, which are functions of (seed, step). Each process
embeds its own part of a batch; they exchange what the others need, and all make the same update, so replicas
stay equal to the last bit:

    Gramian batch B     process p computes the mean rank-one term M_p of its |B|/N members; (1/N) sum_p M_p
                        is that of B. This exchanges k² numbers. Estimators with caches gather the rows.
    gradient batch B'   process p computes the gradient of 1/N of the mean over its |B'|/N pairs; the sum is
                        that over B'. Tables exchange the gradients of bags: |B'| rows, not whole tables.

gloo exchanges tensors on the CPU, nccl those on GPUs, one GPU per process.
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
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from gramrun.base.errors import GramrunError, RunError
from gramrun.base.torchrun import environment_number, process_count

T = TypeVar("T")

# The timeout of an exchange. The first process evaluates while the others wait, so it exceeds the time of an
# evaluation. A process that has died is noticed at once.
_TIMEOUT = timedelta(hours=1)


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them. All must call the same methods in the same order.

    Attributes:
        rank: the number of this process, from 0.
        count: N; with 1 nothing is exchanged, and tensors are returned as they are.
    """

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    @property
    def here(self) -> int:
        """How many of the processes run on this machine."""
        return 1 if self.count == 1 else environment_number("LOCAL_WORLD_SIZE", self.count)

    def part(self, length: int) -> slice:
        """The rows of `length` that this process has: contiguous, in order of ranks, nearly equally many."""
        return slice(self.rank * length // self.count, (self.rank + 1) * length // self.count)

    def block(self, rows: int) -> slice:
        """The rows of a split table that this process holds: p⌈V/N⌉ … (p + 1)⌈V/N⌉ − 1 of V."""
        size = -(-rows // self.count)
        return slice(min(self.rank * size, rows), min((self.rank + 1) * size, rows))

    def share(self, rows: Tensor) -> Tensor:
        """The part of common rows that this process computes."""
        return rows[self.part(len(rows))]

    @torch.no_grad()
    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all processes, equally many each: shape (N · rows, ...)."""
        if self.count == 1:
            return rows
        rows = rows.detach().contiguous()
        whole = rows.new_empty(self.count * len(rows), *rows.shape[1:])
        with exchange_errors():
            dist.all_gather(list(whole.chunk(self.count)), rows)
        return whole

    @torch.no_grad()
    def gather_uneven(self, rows: Tensor) -> Tensor:
        """As `gather`, for different numbers of rows per process; costs one more exchange."""
        if self.count == 1:
            return rows
        lengths = [int(n) for n in self.gather(torch.tensor([len(rows)], device=rows.device))]
        padded = rows.new_zeros(max(lengths), *rows.shape[1:])
        padded[: len(rows)] = rows
        parts = self.gather(padded).split(max(lengths)) if max(lengths) else ()
        return torch.cat([rows[:0], *(part[:n] for part, n in zip(parts, lengths, strict=False))])

    @torch.no_grad()
    def sum(self, tensor: Tensor) -> Tensor:
        """The elementwise sum over the processes, with the same bits in all of them."""
        if self.count == 1:
            return tensor
        total = tensor.detach().clone()
        with exchange_errors():
            dist.all_reduce(total)
        return total

    def mean(self, tensor: Tensor) -> Tensor:
        """The elementwise mean over the processes, with the same bits in all of them."""
        return self.sum(tensor) / self.count if self.count > 1 else tensor

    def add_gradients(self, parameters: Iterable[Tensor]) -> None:
        """Replace the gradients of `parameters` by their sums over the processes.

        Dense gradients are summed in one exchange. Rows of sparse gradients differ by process, so they are
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
        """For each flag, whether any process has set it; one exchange."""
        if self.count == 1:
            return here
        return tuple(bool(total) for total in self.sum(torch.tensor(here, dtype=torch.float32)))

    def from_first(self, make: Callable[[], T]) -> T:
        """Broadcast the small result of `make`, which only the first process calls."""
        if self.count == 1:
            return make()
        made = [make() if self.first else None]
        with exchange_errors():
            dist.broadcast_object_list(made, device=torch.device("cpu"))
        return made[0]  # type: ignore[return-value]

    def gather_objects(self, small: T) -> list[T]:
        """The small objects of all processes, in order of ranks."""
        if self.count == 1:
            return [small]
        gathered: list[Any] = [None] * self.count
        with exchange_errors():
            dist.all_gather_object(gathered, small)
        return gathered

    def wait(self) -> None:
        """Wait until all processes have called this."""
        self.any(False)


SINGLE_PROCESS = Processes()


@contextlib.contextmanager
def exchange_errors() -> Iterator[None]:
    """Turn a failed exchange into a `RunError`: another process is gone. Other errors pass."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise RunError(
            "lost the other processes of this run, one of which has ended or stands still"
        ) from error


def started_together() -> bool:
    """Whether torchrun, or a launcher with the same environment variables, has started several processes.

    Raises:
        InputError: when the variables hold no numbers.
    """
    if "RANK" not in os.environ or process_count() <= 1:
        return False
    environment_number("RANK", 0)  # checked here, as torch would raise a ValueError
    return True


@contextlib.contextmanager
def joined() -> Iterator[Processes]:
    """Join the process group of the processes that torchrun has started; a single process needs none.

    An error in one process ends all. The first process that fails reports the error; in the others this
    raises `SystemExit` without a message.

    Raises:
        RunError: when the processes cannot find one another.
    """
    if not started_together():
        yield SINGLE_PROCESS
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
        shared, rank, count = next(rendezvous("env://", timeout=_TIMEOUT))
        # torchrun --max-restarts keeps the store, with the addresses of processes that are gone. Its count of
        # restarts is the same in all processes on one machine only.
        alone = environment_number("GROUP_WORLD_SIZE", 1) == 1
        restarts = environment_number("TORCHELASTIC_RESTART_COUNT", 0) if alone else 0
        store = PrefixStore(f"start {restarts}", shared)
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        exchange = PrefixStore("exchange", store)
        dist.init_process_group(backend, store=exchange, rank=rank, world_size=count, timeout=_TIMEOUT)
        processes = Processes(rank, count)
        processes.wait()  # for all connections: to a process still connecting, one that ends has crashed
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160]
        raise RunError(f"the processes of this run cannot find one another: {reason}") from error
    try:
        yield processes
    except BaseException as error:
        _ignore_signals()
        code = getattr(error, "exit_code", None)  # a `GramrunError` or an `Interrupted`
        interrupted = code is not None and not isinstance(error, GramrunError)
        if (interrupted and rank > 0) or not _reports_error(store, rank):
            raise SystemExit(1 if code is None else code) from None
        raise
    finally:
        dist.destroy_process_group()


def _ignore_signals() -> None:
    """Ignore the launcher's signals from now on; it terminates all processes as soon as one has ended."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _reports_error(store: Store, rank: int) -> bool:
    """Whether this process reports its error: no other has, and rank 0 had one second to do so."""
    try:
        for _ in range(10 if rank > 0 else 0):
            if store.check(["speaker"]):
                break
            time.sleep(0.1)
        return bool(store.compare_set("speaker", "", str(rank)) == str(rank).encode())
    except RuntimeError:
        return True  # the store lived in the first process, which is gone
