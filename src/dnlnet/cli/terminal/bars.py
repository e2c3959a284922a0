"""Bars that appear with the first thing to show, so that no empty one stands above an error."""

from typing import Any

from rich.progress import Progress, TaskID


class LateProgress(Progress):
    """Progress that is drawn from its first visible task on."""

    def __enter__(self) -> "LateProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self.live.is_started:
            self.stop()

    def add_task(self, *arguments: Any, **options: Any) -> TaskID:
        """As in `Progress`."""
        task = super().add_task(*arguments, **options)
        self._begin()
        return task

    def update(self, *arguments: Any, **options: Any) -> None:
        """As in `Progress`."""
        super().update(*arguments, **options)
        self._begin()

    def _begin(self) -> None:
        if not self.live.is_started and any(task.visible for task in self.tasks):
            self.start()
