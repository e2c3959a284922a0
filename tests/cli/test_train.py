import pytest

from dnlnet.cli.train import TrainingBar
from dnlnet.engine.train import Progress


def test_the_speed_is_that_of_the_iterations_however_long_they_take(capsys: pytest.CaptureFixture[str]) -> None:
    with TrainingBar(batch=2, unit="images") as bar:
        for iteration, seconds in enumerate((50.0, 30.0), start=1):
            bar.show(Progress(iteration, 4, 0.1, {"loss": 1.5}, seconds))
        state = bar.progress.tasks[0].fields["state"]
    shown = capsys.readouterr().err.splitlines()
    assert "iteration 1 of 4: loss 1.500  lr 0.1000  0.04 images/s" in shown
    assert "iteration 2 of 4: loss 1.500  lr 0.1000  0.05 images/s" in shown
    assert state.endswith("0:01:20 left")


def test_an_evaluation_has_a_bar_until_it_is_over() -> None:
    with TrainingBar(batch=2, unit="images") as bar:
        bar.evaluate(1, 2)
        (task,) = bar.progress.tasks
        assert (task.description, task.completed, task.total, task.visible) == ("evaluating", 1, 2, True)
        bar.evaluate(2, 2)
        assert not task.visible
