"""Which failed tests are run once more: those marked `second_try("why")`, and each that needed it is told at the end.

The reason says what outside the project decides such a test. All others fail at once.
"""

from __future__ import annotations

import pytest


def why_twice(item: pytest.Item) -> str | None:
    marker = item.get_closest_marker("second_try")
    if marker is None:
        return None
    if len(marker.args) != 1 or not str(marker.args[0]).strip() or marker.kwargs:
        raise pytest.UsageError(f'{item.nodeid}: expected second_try("why"), got {marker}')
    return str(marker.args[0])


def has_reruns(config: pytest.Config) -> bool:
    """pytest-rerunfailures is there: by its entry point, or as `-p` names it."""
    return any(config.pluginmanager.hasplugin(name) for name in ("rerunfailures", "pytest_rerunfailures"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (why := why_twice(item)) is not None and has_reruns(item.config):
            item.user_properties.append(("second_try", why))
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    first = {report.nodeid: report for report in terminalreporter.stats.get("rerun", [])}
    passed = [report for report in terminalreporter.stats.get("passed", []) if report.nodeid in first]
    for nodeid, report in first.items():
        terminalreporter.section(f"the first try of {nodeid}")
        terminalreporter.line("\n".join(report.longreprtext.splitlines()[-60:]))
    named = [f"{report.nodeid} ({dict(report.user_properties)['second_try']})" for report in passed]
    told = f"{len(named)} test{'' if len(named) == 1 else 's'} passed at a second try"
    terminalreporter.line(told + ": " * bool(named) + "; ".join(named))
