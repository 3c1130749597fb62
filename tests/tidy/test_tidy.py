"""Each rule of ci/tidy.py finds its breach, and lets the right thing be."""

from pathlib import Path

import pytest
import tidy

ROOT = Path(__file__).resolve().parents[2]
HEADER = "// What it is.\n//\n// Threads: any.\n#pragma once\n"


def breaches(rule: str, root: Path, files: dict[str, str], warnings: bool = False) -> list[tuple[str, int]]:
    """(path, line) of what the rule finds in a tree of these files."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    found = getattr(tidy, rule)(tidy.Tree(root))
    return [(p.path, p.line) for p in found if warnings or not p.warning]


@pytest.mark.parametrize(
    ("path", "include", "wrong"),
    [
        ("plugin/core/wire/a.h", "core/base/b.h", False),
        ("plugin/core/base/a.h", "core/wire/b.h", True),
        ("plugin/core/wire/a.cpp", "core/protocol/b.h", True),
        ("plugin/core/protocol/a.cpp", "core/wire/b.h", False),
        ("plugin/core/protocol/a.cpp", "core/runtime/b.h", True),
        ("plugin/core/codec/a.cpp", "core/wire/b.h", True),
        ("plugin/core/arena/a.cpp", "core/arena/b.h", False),
        ("plugin/core/runtime/a.cpp", "core/arena/b.h", False),
        ("plugin/core/runtime/a.cpp", "core/protocol/site/b.h", False),
        ("plugin/core/protocol/site/a.cpp", "core/protocol/coordinator/b.h", True),
        ("plugin/core/protocol/a.cpp", "core/protocol/site/b.h", True),
        ("plugin/core/runtime/a.cpp", "transport/ucx/b.h", True),
        ("plugin/transport/ucx/a.cpp", "transport/tcp/b.h", True),
        ("plugin/transport/ucx/a.cpp", "core/base/b.h", False),
        ("plugin/transport/ucx/a.cpp", "core/protocol/b.h", True),
        ("plugin/torch/a.cpp", "core/runtime/b.h", False),
        ("plugin/tools/a.cpp", "transport/ucx/b.h", False),
        ("plugin/core/unknown/a.cpp", "core/base/b.h", True),
        ("include/collab/a.h", "core/base/b.h", True),
        ("include/collab/a.h", "collab/b.h", False),
    ],
)
def test_arrows(tmp_path: Path, path: str, include: str, wrong: bool) -> None:
    assert bool(breaches("arrows", tmp_path, {path: f'#include "{include}"\n'})) == wrong


SHIM = "python_shim/torch_collab"


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("capture/a.py", "from torch_collab.world import state", False),
        ("capture/a.py", "from torch_collab import log", False),
        ("capture/a.py", "from torch_collab.backend.shutdown import finish", True),
        ("world/a.py", "from torch_collab.capture import steps", True),
        ("world/a.py", "def f():\n    from torch_collab import log", True),
        ("world/a.py", "if TYPE_CHECKING:\n    from torch_collab.capture.steps import Step", True),
        ("network/a.py", "from torch_collab import torch_compat", True),
        ("log.py", "from torch_collab import native", True),
        ("native.py", "def f():\n    from torch_collab import _C", False),
        ("elsewhere/a.py", "import json", True),
        ("capture/a.py", "from torch_collab.capture.b import x", False),
        ("capture/b.py", "from torch_collab.capture import b", True),
    ],
)
def test_shim_arrows(tmp_path: Path, path: str, line: str, wrong: bool) -> None:
    others = {f"{SHIM}/{name}": "" for name in ("capture/b.py", "world/state.py", "log.py")}
    assert bool(breaches("shim_arrows", tmp_path, {**others, f"{SHIM}/{path}": line + "\n"})) == wrong


def test_a_circle_of_imports_is_told_of_at_each_module_in_it(tmp_path: Path) -> None:
    files = {
        f"{SHIM}/world/a.py": "from torch_collab.world import b\n",
        f"{SHIM}/world/b.py": "from torch_collab.world.c import x\n",
        f"{SHIM}/world/c.py": "if TYPE_CHECKING:\n    from torch_collab.world.a import y\n",
        f"{SHIM}/world/d.py": "from torch_collab.world import a\n",
    }
    assert breaches("shim_arrows", tmp_path, files) == [(f"{SHIM}/world/{name}.py", 1) for name in "abc"]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("world.run.failed = True", True),
        ("run.steps += 1", True),
        ("a, run.failed = 1, 2", True),
        ("del run.steps", True),
        ("module.process_group = group", False),
        ("failed = run.failed", False),
        ("class Mine:\n    failed: bool\n\n\ndef f(mine):\n    mine.failed = True", False),
        ("class Mine:\n    def __init__(self):\n        self.failed = True", False),
    ],
)
def test_shim_fields(tmp_path: Path, line: str, wrong: bool) -> None:
    owner = "class Run:\n    steps: int\n\n    def fail(self):\n        self.failed = True\n"
    files = {f"{SHIM}/world/a.py": line + "\n", f"{SHIM}/world/run.py": owner}
    assert bool(breaches("shim_fields", tmp_path, files)) == wrong


def test_the_shim_waits_only_where_it_is_listed() -> None:
    for module in tidy.rules_shim.WAITS:
        folder = ROOT / SHIM / module.replace(".", "/")
        text = (folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")).read_text()
        names = {"_C", *tidy.rules_shim.ARROWS}
        assert any(found.waits for found in tidy.rules_shim.imports(text, names)), f"{module} does not wait"


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("torch._C._current_graph_task_id()", True),
        ("from torch._C._distributed_c10d import PrefixStore", True),
        ("from torch.nn.parallel.distributed import _get_default_group", True),
        ("import torch._dynamo", True),
        ("distributed_c10d._world.pg_map", True),
        ("module._buffers", True),
        ("getattr(ddp, '_comm_hooks', None)", True),
        ("self._seen", False),
        ("x: _C.Session", False),
        ("from torch_collab import _C", False),
        ("Settings.__dataclass_fields__", False),
    ],
)
def test_guest_of_torch(tmp_path: Path, line: str, wrong: bool) -> None:
    files = {f"{SHIM}/world/a.py": f"\n{line}\n", f"{SHIM}/torch_compat.py": f"{line}\n"}
    assert set(breaches("guest_of_torch", tmp_path, files)) == ({(f"{SHIM}/world/a.py", 2)} if wrong else set())


@pytest.mark.parametrize(
    ("path", "include", "wrong"),
    [
        ("plugin/torch/a.cpp", "c10/core/impl/VirtualGuardImpl.h", True),
        ("plugin/torch/torch_private.h", "c10/core/impl/VirtualGuardImpl.h", False),
        ("plugin/torch/a.h", "torch/torch_private.h", False),
        ("plugin/torch/a.cpp", "ATen/ATen.h", False),
        ("plugin/transport/gloo/a.h", "torch/csrc/distributed/c10d/Backend.hpp", False),
        ("include/collab/torch/backend.h", "torch/csrc/distributed/c10d/Store.hpp", True),
        ("plugin/torch/bindings.h", "torch/csrc/utils/pybind.h", False),
        ("plugin/torch/a.cpp", "torch/csrc/utils/pybind.h", True),
        ("tests/torch/a.cpp", "c10/core/impl/VirtualGuardImpl.h", False),
    ],
)
def test_guest_of_torch_in_cpp(tmp_path: Path, path: str, include: str, wrong: bool) -> None:
    files = {tidy.rules_torch.HEADER: HEADER, path: f"#include <{include}>\n"}
    assert breaches("guest_of_torch", tmp_path, files) == ([(path, 1)] if wrong else [])


@pytest.mark.parametrize(
    ("path", "include", "wrong"),
    [
        ("plugin/torch/a.cpp", "torch/torch.h", False),
        ("plugin/torch/a.cpp", "pybind11/pybind11.h", False),
        ("plugin/core/base/a.cpp", "ATen/ATen.h", True),
        ("plugin/torch/a.cpp", "c10/core/impl/VirtualGuardImpl.h", False),
        ("plugin/torch/a.cpp", "c10/cuda/CUDAStream.h", True),
        ("plugin/torch/a.cpp", "ATen/native/cuda/Loops.cuh", True),
        ("plugin/torch/a.cpp", "torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp", True),
        ("plugin/transport/gloo/a.cpp", "cuda_runtime.h", True),
        ("include/collab/session.h", "c10/util/x.h", True),
        ("include/collab/torch/backend.h", "torch/csrc/x.h", False),
        ("plugin/core/base/log.cpp", "spdlog/spdlog.h", False),
        ("plugin/core/runtime/log.cpp", "spdlog/spdlog.h", True),
        ("plugin/transport/ucx/a.cpp", "ucp/api/ucp.h", False),
        ("plugin/transport/tcp/a.cpp", "ucp/api/ucp.h", True),
        ("plugin/core/arena/a.cpp", "boost/interprocess/mapped_region.hpp", False),
        ("plugin/core/runtime/a.cpp", "boost/interprocess/mapped_region.hpp", True),
        ("plugin/transport/ucx/a.cpp", "boost/asio.hpp", True),
        ("plugin/core/codec/a.cpp", "xxhash.h", True),
    ],
)
def test_rooms(tmp_path: Path, path: str, include: str, wrong: bool) -> None:
    assert bool(breaches("rooms", tmp_path, {path: f"#include <{include}>\n"})) == wrong


def test_our_own_header_is_no_third_party(tmp_path: Path) -> None:
    files = {"plugin/torch/work.h": HEADER, "plugin/tools/a.cpp": '#include "torch/work.h"\n'}
    assert breaches("rooms", tmp_path, files) == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("auto t = std::chrono::steady_clock::now();", True),
        ("std::this_thread::sleep_for(x);", True),
        ("std::random_device device;", True),
        ('const char* v = std::getenv("X");', True),
        ("std::unordered_map<int, int> m;", True),
        ("// unlike steady_clock, this is told the time", False),
        ('const char* text = "getenv";', False),
        ("const TimePoint now = when;", False),
    ],
)
def test_determinism(tmp_path: Path, line: str, wrong: bool) -> None:
    found = breaches("determinism", tmp_path, {"plugin/core/protocol/a.cpp": f"\n{line}\n"})
    assert found == ([("plugin/core/protocol/a.cpp", 2)] if wrong else [])


def test_determinism_is_for_the_folders_that_make_bytes_and_decisions(tmp_path: Path) -> None:
    assert breaches("determinism", tmp_path, {"plugin/core/runtime/a.cpp": "std::getenv(name);\n"}) == []


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("wire::Form form;", True),
        ("part = cohort_part;", True),
        ("std::string names_in_words();", True),
        ("wire::StartAttempt start;", False),
        ("// Found by name.", False),
        ('const char* text = "MeetingSeat";', True),
        ('log("the \\"ranks\\" of this cohort");', True),
        ('log("the hub\'s meeting");', True),
        ('text = R"(<p>\n")";  // MeetingSeat', False),
        ("auto seat = a;", False),
        ("auto hub = a;  // of a meeting", True),
        ("char c = '\"'; Seat s;", False),
    ],
)
def test_words(tmp_path: Path, line: str, wrong: bool) -> None:
    found = breaches("words", tmp_path, {"plugin/core/wire/a.h": f"\n{line}\n"})
    assert found == ([("plugin/core/wire/a.h", 2)] if wrong else [])


@pytest.mark.parametrize("path", ["docs/guide.md", "plugin/core/wire/a.cpp"])
def test_words_of_documents_and_comments_are_read_too(tmp_path: Path, path: str) -> None:
    files = {
        path: "\n// A site has its seat at the hub.\n",
        "docs/glossary.md": "seat: hub client\n",
        "CHANGELOG.md": "seat\n",
    }
    assert breaches("words", tmp_path, files) == [(path, 2)]


@pytest.mark.parametrize("line", ['store.part("cohort")', "# The cohort is here.", "text = in_words(settings)"])
def test_words_of_python_are_read_whole(tmp_path: Path, line: str) -> None:
    files = {"python_shim/torch_collab/a.py": f"\n{line}\n", "python_shim/torch_collab/b.py": "# In words.\n"}
    assert breaches("words", tmp_path, files) == [("python_shim/torch_collab/a.py", 2)]


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("plugin/a.cpp", 'all_->note(Note::Level::kInfo, "shares", text);', True),
        ("plugin/a.cpp", 'all_->send(member, wire::Notice{"passed-over", text});', True),
        ("plugin/a.cpp", 'all_->note(Note::Level::kInfo, "partition", text);', False),
        ("plugin/a.cpp", '{{.name = "shares",', False),
        ("plugin/a.cpp", 'io.boolean("behind", m.behind);', False),
        ("tests/unit/a_test.cpp", 'EXPECT_EQ(notice.event, "passed-over");', True),
        ("tests/unit/a_test.cpp", 'EXPECT_THAT(notes(last), HasSubstr("[shares] round 3"));', True),
        ("tests/python/a.py", 'told = [event for event in events if event["event"] == "unreached"]', True),
        ("tests/python/a.py", 'first_after(at, told, event="behind")', True),
        ("python_shim/torch_collab/a.py", 'Span("behind", trigger, end)', False),
        ("docs/guides/a.md", "The event `shares` shows the parts.", True),
        ("docs/guides/a.md", "It gets a `Notice` `passed-over`.", True),
        ("docs/guides/a.md", "The event `partition` shows the shares.", False),
    ],
)
def test_words_of_events(tmp_path: Path, path: str, line: str, wrong: bool) -> None:
    assert breaches("words", tmp_path, {path: f"\n{line}\n"}) == ([(path, 2)] if wrong else [])


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("tests/unit/a_test.cpp", "TEST_F(Round, WhoLeavesIsNotWaitedFor) {", True),
        ("tests/unit/a_test.cpp", "TEST(Round, WhatIsLate) {", True),
        ("tests/unit/a_test.cpp", "TEST(Round, WholeAnchorsOnly) {", False),
        ("tests/unit/a_test.cpp", "TEST(Round, ASiteThatLeavesIsNotWaitedFor) {", False),
        ("tests/python/test_a.py", "def test_who_leaves(swarm: Swarm) -> None:", True),
        ("tests/python/test_a.py", "def test_whole_anchors() -> None:", False),
    ],
)
def test_names_of_tests_have_a_subject(tmp_path: Path, path: str, line: str, wrong: bool) -> None:
    assert breaches("words", tmp_path, {path: f"\n{line}\n"}) == ([(path, 2)] if wrong else [])


def test_no_sleeping_in_tests(tmp_path: Path) -> None:
    line = "std::this_thread::sleep_for(x);\n"
    files = {"tests/unit/a_test.cpp": line, "plugin/core/runtime/a.cpp": line, next(iter(tidy.MAY_POLL)): line}
    assert breaches("no_sleeping_in_tests", tmp_path, files) == [("tests/unit/a_test.cpp", 1)]


def test_files_that_may_poll_exist_and_poll() -> None:
    for path in tidy.MAY_POLL:
        assert tidy.SLEEPS.search((ROOT / path).read_text()), f"{path} does not sleep: take it off the list"


@pytest.mark.parametrize(("lines", "warned", "wrong"), [(500, False, False), (501, True, False), (601, True, True)])
def test_file_length(tmp_path: Path, lines: int, warned: bool, wrong: bool) -> None:
    files = {"a.py": "x = 1\n" * lines}
    assert bool(breaches("file_length", tmp_path, files, warnings=True)) == warned
    assert bool(breaches("file_length", tmp_path, files)) == wrong


def cpp_function(lines: int) -> str:
    return "Status Thing::run(int a,\n                  int b) {\n" + "  step();\n" * (lines - 3) + "}\n"


@pytest.mark.parametrize(("lines", "warned", "wrong"), [(70, False, False), (71, True, False), (81, True, True)])
def test_function_length(tmp_path: Path, lines: int, warned: bool, wrong: bool) -> None:
    body = "\n".join(["    x = 1"] * (lines - 1))
    for name, text in {"a.cpp": cpp_function(lines), "a.py": f"def f() -> None:\n{body}\n"}.items():
        files = {name: text}
        assert (name, 1) in breaches("function_length", tmp_path, files, warnings=True) or not warned
        assert ((name, 1) in breaches("function_length", tmp_path, files)) == wrong


def test_functions_of_a_file_are_told_apart() -> None:
    text = (
        "namespace collab {\n\nclass A {\n public:\n"
        "  int one() {\n    if (x) {\n      y();\n    }\n    return 1;\n  }\n};\n\n"
        "A::A(int a)\n    : a_(a),\n      b_(a) {\n  go();\n}\n\nconst std::array<int, 2> kTable = {\n    1,\n};\n"
        'TEST_F(Arena, "x {") {\n  check();\n}\n\n}  // namespace collab\n'
    )
    assert list(tidy.cpp_functions(text)) == [(5, 6), (13, 5), (22, 3)]


def test_built(tmp_path: Path) -> None:
    files = {
        "plugin/core/base/CMakeLists.txt": "collab_library(collab_base SOURCES status.cpp)\n",
        "plugin/core/base/status.cpp": "",
        "plugin/core/base/us.cpp": "",
        "tests/unit/CMakeLists.txt": "collab_test(a SOURCES base/a_test.cpp)\n",
        "tests/unit/base/a_test.cpp": "",
        "tests/unit/base/lost_test.cpp": "",
    }
    lost = [("plugin/core/base/us.cpp", 1), ("tests/unit/base/lost_test.cpp", 1)]
    assert breaches("built", tmp_path, files) == lost
    assert breaches("built", tmp_path, {"cmake/X.cmake": "\nfile(GLOB a *.cpp)\n"}) == [*lost, ("cmake/X.cmake", 2)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (HEADER, False),
        ("#pragma once\n", True),
        ("// What it is. Threads: any.\nint x;\n", True),
        ("// What it is.\n#pragma once\n// Threads: said too late.\n", True),
    ],
)
def test_headers(tmp_path: Path, text: str, wrong: bool) -> None:
    assert bool(breaches("headers", tmp_path, {"plugin/core/base/a.h": text})) == wrong


def test_python_docstrings(tmp_path: Path) -> None:
    files = {"ci/a.py": '"""What it is for."""\n', "ci/b.py": "x = 1\n", "ci/__init__.py": "", "tests/c.py": "x = 1\n"}
    assert breaches("python_docstrings", tmp_path, files) == [("ci/b.py", 1)]


def test_shell(tmp_path: Path) -> None:
    files = {
        "ci/good.sh": "set -euo pipefail\nrun\n",
        "ci/sourced.sh": '. "$(dirname "$0")/common.sh"\n',
        "ci/loose.sh": "run\n",
        "ci/hides.sh": "set -euo pipefail\nrun || true\n",
    }
    assert breaches("shell", tmp_path, files) == [("ci/hides.sh", 2), ("ci/loose.sh", 1)]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("// TO" + "DO: later", True),
        ("# FIX" + "ME", True),
        ("path = '/ro" + "ot/thing'", True),
        ("cd /ho" + "me/anna/src", True),
        ("cmake -S $root/wo" + "rk/tree", False),
        ("https://example.org/wo" + "rk/page", False),
        ("what to do next", False),
    ],
)
def test_finished(tmp_path: Path, line: str, wrong: bool) -> None:
    assert bool(breaches("finished", tmp_path, {"a.md": line + "\n"})) == wrong


GOOD_CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n### Wire\n- Frames.\n\n## [0.1.0] - 2026-01-31\n### Added\n- All.\n"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (GOOD_CHANGELOG, False),
        (GOOD_CHANGELOG.replace("# Changelog", "# Changes", 1), True),
        (GOOD_CHANGELOG.replace("### Wire", "### Bytes"), True),
        (GOOD_CHANGELOG.replace("## [Unreleased]\n", ""), True),
        (GOOD_CHANGELOG.replace("2026-01-31", "January"), True),
    ],
)
def test_changelog(tmp_path: Path, text: str, wrong: bool) -> None:
    assert bool(breaches("changelog", tmp_path, {"CHANGELOG.md": text})) == wrong


def test_a_missing_changelog_is_a_breach(tmp_path: Path) -> None:
    assert breaches("changelog", tmp_path, {"a.md": ""}) == [("CHANGELOG.md", 1)]


RULED = {
    "docs/protocol/wire.md": "# Wire\n```\n# a layout\n```\n## Frames\n**Forms.** x\n1. first\n",
    "docs/protocol/rounds.md": "# Rounds\n",
    "plugin/core/base/knobs.cpp": 'words{{"auto", "equal"}};\nkRows = {\n    {{.name = "codec",\n',
    "tests/unit/a_test.cpp": "TEST_F(A, Works) {}\n",
    "tests/python/test_b.py": "def test_b() -> None:\n",
    "tests/RULES.md": (
        "| rule | tests |\n|---|---|\n| Wire | `A.Works` |\n| Wire / Frames | `A.Works` `test_b.py::test_b` |\n"
        "| Wire / Frames / Forms | `A.Works` |\n| Wire / Frames / Forms / 1 | `A.Works` |\n| `codec` | `A.Works` |\n"
        "| Rounds | `A.Works` |\n"
    ),
}


@pytest.mark.parametrize(
    ("path", "old", "new", "lines"),
    [
        ("tests/RULES.md", "", "", []),
        ("tests/RULES.md", "| Wire / Frames / Forms / 1 | `A.Works` |\n", "", [1]),
        ("tests/RULES.md", "| `codec` | `A.Works` |\n", "", [1]),
        ("tests/RULES.md", "| Wire / Frames / Forms | `A.Works` |", "| Wire / Frames / Forms | by eye |", [5]),
        ("tests/RULES.md", "| Wire | `A.Works` |\n", "| Wire | `A.Works` |\n| Wire | `A.Works` |\n", [4]),
        ("tests/unit/a_test.cpp", "Works", "Runs", [3, 4, 5, 6, 7, 8]),
        ("tests/python/test_b.py", "test_b", "test_c", [4]),
        ("docs/protocol/wire.md", "**Forms.**", "**Shapes.**", [5, 6, 1, 1]),
        ("docs/protocol/rounds.md", "Rounds", "Turns", [8, 1]),
        ("plugin/core/base/knobs.cpp", "codec", "codecs", [7, 1]),
    ],
)
def test_tests_of_rules(tmp_path: Path, path: str, old: str, new: str, lines: list[int]) -> None:
    files = {**RULED, path: RULED[path].replace(old, new, 1)}
    assert breaches("tests_of_rules", tmp_path, files) == [("tests/RULES.md", line) for line in lines]


@pytest.mark.parametrize(
    ("named", "wrong"), [("A.Works", False), ("A.*", False), ("A.Breaks", True), ("B.*", True), ("a.cpp", False)]
)
def test_tests_that_the_protocol_names_are_there(tmp_path: Path, named: str, wrong: bool) -> None:
    path = "docs/protocol/wire.md"
    files = {**RULED, path: f"{RULED[path]}bounded (`{named}`)\n"}
    assert breaches("tests_of_rules", tmp_path, files) == ([(path, 8)] if wrong else [])


@pytest.mark.parametrize(
    ("path", "line", "wrong"),
    [
        ("tests/python/test_a.py", "@pytest.mark.flaky(reruns=2)", True),
        ("ci/a.sh", "ctest --repeat until-pass:2", True),
        ("ci/a.sh", "python -m pytest --reruns 3", True),
        ("tests/python/test_a.py", '@pytest.mark.second_try("why")', False),
        ("tests/python/second_tries.py", "pytest.mark.flaky(reruns=1)", False),
    ],
)
def test_second_tries(tmp_path: Path, path: str, line: str, wrong: bool) -> None:
    assert breaches("second_tries", tmp_path, {path: f"\n{line}\n"}) == ([(path, 2)] if wrong else [])


ROW = {
    "name": "chunk_kib", "type": "whole", "default": "256", "unit": "KiB", "range": "4..65536",
    "sentence": "What it is.", "scope": "sites", "advanced": True, "secret": False, "old_name": "chunk",
}  # fmt: skip


def test_knobs(tmp_path: Path) -> None:
    fields = tmp_path / tidy.knob_files.FIELDS
    fields.parent.mkdir(parents=True)

    page = tmp_path / tidy.knob_files.PAGE
    page.parent.mkdir(parents=True)

    def found(text: str, made: str = "x = 1\n") -> list[object]:
        page.write_text(text)
        fields.write_text(made)
        return list(tidy.check_knobs(tidy.Tree(tmp_path), lambda: "| a | 1 |\n", lambda: "x = 1\n"))

    good = "x\n<!-- knobs -->\n| a | 1 |\n<!-- /knobs -->\n"
    assert found(good) == []
    assert [p.line for p in found("x\n<!-- knobs -->\n| a | 2 |\n<!-- /knobs -->\n")] == [2]
    assert [p.path for p in found(good, "x = 2\n")] == [tidy.knob_files.FIELDS]
    assert len(found("no table\n")) == 1


def test_knobs_that_cannot_be_asked_for_are_a_breach(tmp_path: Path) -> None:
    def absent() -> str:
        raise RuntimeError("not installed")

    page = tmp_path / tidy.knob_files.PAGE
    page.parent.mkdir(parents=True)
    page.write_text("<!-- knobs -->\n<!-- /knobs -->\n")
    assert len(list(tidy.check_knobs(tidy.Tree(tmp_path), absent, absent))) == 2


def test_fields_of_knobs_are_python_that_says_what_the_row_does() -> None:
    secret = {**ROW, "name": "token", "type": "text", "default": "", "secret": True, "old_name": ""}
    made: dict[str, object] = {}
    exec(tidy.knob_files.fields([ROW, secret]), made)
    assert made["OLD_NAMES"] == {"chunk": ("chunk_kib",)}
    options = made["OptionFields"](chunk_kib=4, token="x")  # type: ignore[operator]
    assert repr(options) == "OptionFields(chunk_kib=4)", "a secret is not shown"
    assert list(made["KnobValues"].__dataclass_fields__) == ["chunk_kib", "token"]  # type: ignore[attr-defined]
    assert '"""What it is. (4..65536; default 256)"""' in tidy.knob_files.fields([ROW])


@pytest.mark.parametrize(
    ("handled", "lines"),
    [
        ("void take(SiteParts& all, const wire::Done& what) {", []),
        ("void take(SiteParts& all, const wire::Ready& what) {", [4]),
        ("void from_peer(SiteParts& all, const wire::Message& message) {", []),
        ("std::get_if<wire::Join>(&message);", [4]),
        ("all.send(wire::Welcome{});", []),  # it is sent, not handled
    ],
)
def test_reactions(tmp_path: Path, handled: str, lines: list[int]) -> None:
    path = "plugin/core/protocol/site/site.cpp"
    text = f"// what follows\n//   Done   Round   commit\n#include <map>\n{handled}\n"
    files = {path: text, "plugin/core/protocol/site/peer.cpp": text}
    assert breaches("reactions", tmp_path, files) == [(path, line) for line in lines]


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("Acceptor::on_prepare", False),
        ("Acceptor::term_, a field", False),
        ("Acceptor::on_form", True),
        ("Acceptance::on_prepare", True),
        ("Round::start", True),  # only named, not defined
        ("begin", False),
    ],
)
def test_names_of_the_model(tmp_path: Path, named: str, wrong: bool) -> None:
    files = {
        "plugin/core/protocol/a.h": "class Round;\nclass Acceptor {\n  Round* start;\n  TermId term_;\n};\n",
        "plugin/core/protocol/a.cpp": "void Acceptor::on_prepare() {}\n",
        "tests/model/agreement.pml": f"\n/* {named} */\n",
    }
    assert breaches("names_of_the_model", tmp_path, files) == ([("tests/model/agreement.pml", 2)] if wrong else [])


LISTED = [f"knob_{letter}" for letter in "abcdefgh"]


@pytest.mark.parametrize(
    ("path", "text", "wrong"),
    [
        ("python_shim/a.py", f"OWN = frozenset({{{str(LISTED)[1:-1]}}})\n", True),
        ("python_shim/a.py", f"OWN = {LISTED[:6]}\n", False),
        ("python_shim/a.py", "class A:\n" + "".join(f"    {name}: int\n" for name in LISTED), True),
        ("python_shim/a.py", "class A:\n" + "".join(f"    other_{name}: int\n" for name in LISTED), False),
        ("plugin/a.cpp", "const auto own = {" + ", ".join(f'"{name}"' for name in LISTED) + "};\n", True),
        ("plugin/a.cpp", "".join(f'use("{name}");\n' for name in LISTED), False),
        ("tests/a.py", f"OWN = {LISTED}\n", False),
    ],
)
def test_knob_lists(tmp_path: Path, path: str, text: str, wrong: bool) -> None:
    table = "kRows = {\n" + "".join(f'    {{{{.name = "{name}",\n' for name in LISTED)
    found = breaches("knob_lists", tmp_path, {tidy.KNOB_TABLE: table, path: text})
    assert found == ([(path, 1)] if wrong else [])


def test_every_rule_is_run() -> None:
    tested = {name[len("test_") :] for name in globals() if name.startswith("test_")}
    assert {check.__name__ for check in tidy.RULES} <= tested


MESSAGE_ROW = "| `join.full` | The swarm is full. | Let a site leave. |\n"
FULL = 'return "it is full [join.full]";\n'


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"plugin/a.cpp": FULL, "docs/messages.md": MESSAGE_ROW}, []),
        ({"plugin/a.cpp": FULL + FULL, "docs/messages.md": MESSAGE_ROW}, []),
        ({"python_shim/a.py": "raise ValueError('it is full [join.full]')\n", "docs/messages.md": MESSAGE_ROW}, []),
        ({"python_shim/a.py": "raise ValueError(f'{1} is full [join.full]')\n", "docs/messages.md": MESSAGE_ROW}, []),
        ({"plugin/a.cpp": FULL}, [("plugin/a.cpp", 1)]),
        ({"docs/messages.md": MESSAGE_ROW}, [("docs/messages.md", 1)]),
        ({"plugin/a.cpp": FULL, "docs/messages.md": MESSAGE_ROW + MESSAGE_ROW}, [("docs/messages.md", 2)]),
        ({"plugin/a.cpp": FULL, "plugin/b.cpp": FULL, "docs/messages.md": MESSAGE_ROW}, [("plugin/b.cpp", 1)]),
        ({"plugin/a.cpp": '// "[join.full]"\nreturn rank[join.full];\n'}, []),
        ({"python_shim/a.py": '"""Refuses with [join.full]."""\n'}, []),
    ],
)
def test_message_codes(tmp_path: Path, files: dict[str, str], found: list[tuple[str, int]]) -> None:
    assert breaches("message_codes", tmp_path, files) == found
