import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dnlnet.runs.probe import fit_probe, patch_labels


def test_the_classifier_minimises_its_loss() -> None:
    torch.manual_seed(0)
    features = 3 * torch.randn(200, 4) + 5
    labels = ((features - 5) @ torch.randn(4, 3)).argmax(dim=1)
    probe = fit_probe(features, labels, classes=4)  # one class never occurs
    weight = probe.weight.clone().requires_grad_()
    logits = (features - features.mean(dim=0)) / features.std(dim=0) @ weight.T + probe.bias
    loss = F.cross_entropy(logits, labels) + 1e-4 * weight.square().sum()
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient.abs().max() < 1e-2
    assert (probe.logits(features).argmax(dim=1) == labels).float().mean() > 0.9
    again = fit_probe(features, labels, classes=4)
    assert torch.equal(probe.weight, again.weight)


def test_pixels_are_predicted_from_patches() -> None:
    torch.manual_seed(0)
    features = torch.randn(50, 2)
    probe = fit_probe(features, (features[:, 0] > 0).long(), classes=2)
    patches = torch.tensor([[[-3.0, 0.0], [3.0, 0.0]]])  # one row of two
    assert probe.predict(patches, (2, 8))[:, [0, 1, 6, 7]].tolist() == [[0, 0, 1, 1]] * 2


def test_patches_of_one_class_are_refused() -> None:
    with pytest.raises(ValueError, match="are of one class"):
        fit_probe(torch.randn(5, 2), torch.zeros(5, dtype=torch.int64), classes=2)


def test_a_patch_has_the_most_frequent_label_of_its_pixels() -> None:
    labels = np.array([[0, 0, 5, 5], [0, 3, 5, 255], [255, 255, 1, 1], [255, 2, 1, 1]], np.uint8)
    assert patch_labels(labels, (2, 2)).tolist() == [[0, 5], [255, 1]]
    assert patch_labels(labels, (4, 4)).tolist() == labels.tolist()
    assert patch_labels(np.array([[7, 7, 8]], np.uint8), (1, 2)).shape == (1, 2)
