"""What a batch is made of, and that its parts are cut alike."""

import torch

from gramrun.gramian.batch import GramianBatch

COLUMNS = ("items", "embeddings", "companions", "pairs", "importance")


def test_what_a_batch_was_not_given_it_does_not_have():
    """Nor after a cut: estimators ask for None, and refuse what they need and do not find."""
    batch = GramianBatch(torch.tensor([5, 3, 5]), torch.arange(6.0).reshape(3, 2))
    for part in (batch, batch.first(2), batch.each(torch.Tensor.double)):
        assert (part.companions, part.pairs, part.importance, part.moments) == (None, None, None, None)


def test_the_first_members_keep_all_their_columns_and_lose_the_moments_of_the_whole():
    batch = GramianBatch(
        torch.tensor([5, 3, 5]),
        torch.arange(6.0).reshape(3, 2),
        torch.arange(3.0)[:, None],
        torch.tensor([7, 8, 9]),
        torch.tensor([0.5, 1.0, 1.5]),
        torch.eye(2),
    )
    part = batch.first(2)
    for name in COLUMNS:
        assert torch.equal(getattr(part, name), getattr(batch, name)[[0, 1]]), name
    assert part.moments is None
