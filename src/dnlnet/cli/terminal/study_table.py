"""Live table of a study's runs."""

from collections.abc import Sequence

from rich.live import Live
from rich.table import Table

from dnlnet.progress import Bars, Tracker
from dnlnet.runs.study import Job, Study


class StudyTable(Bars):
    """Progress of a study: a table of all runs in a terminal, elsewhere a line per finished run."""

    def __init__(self, study: Study, jobs: Sequence[Job]) -> None:
        super().__init__()
        self.study, self.jobs = study, jobs

    def track(self, name: str, total: int | None = None, *, start: int = 0, unit: str | None = None) -> Tracker:
        """Return a tracker that shows the table."""
        return _LiveTable(self) if self.console.is_terminal else super().track(name, total, start=start, unit=unit)

    def draw(self) -> Table:
        """Draw the table from the logs of all runs."""
        states = [self.study.state(job) for job in self.jobs]
        table = Table(title=f"{sum(state.done for state in states)} of {len(states)} runs done")
        for column in ("recipe", "seed", "iteration", "score"):
            table.add_column(column)
        for state in states:
            if state.done or state.begun:
                done = "done" if state.done else f"{state.iteration} of {state.iterations}"
                score = "-" if state.score is None else f"{state.score:.3f}"
                table.add_row(state.job.recipe.name, str(state.job.seed), done, score)
        return table


class _LiveTable:
    def __init__(self, shown: StudyTable) -> None:
        self.live = Live(get_renderable=shown.draw, console=shown.console, refresh_per_second=0.5, transient=True)

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.live.refresh()

    def __enter__(self) -> "_LiveTable":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()
