"""What every command says of itself, and what shells complete."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess

import pytest
from commands import collab
from torch_collab.cli import main, parser


def commands() -> dict[str, argparse.ArgumentParser]:
    (choice,) = (action for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(choice.choices)


FORMS = commands()
OWN = sorted(set(FORMS) - {"lab"})  # whose command line another program reads


@pytest.mark.parametrize("name", OWN)
def test_help_has_a_description_an_example_and_every_exit_status(name: str) -> None:
    text = FORMS[name].format_help()
    assert FORMS[name].description and FORMS[name].description.endswith("."), text
    statuses = re.findall(r"^  (\d+) +\S", text.partition("exit status:\n")[2], re.M)
    assert {"0", "1", "2", "130"} <= set(statuses) and statuses == sorted(statuses, key=int), text
    examples = re.findall(r"^  (.+)$", re.search(r"^examples?:\n((?:  .+\n)+)", text, re.M)[1], re.M)  # type: ignore[index]
    assert examples
    for line in examples:
        words = re.search(rf"collab {name}\b[^|>)]*", line)
        assert words, f"{line!r} is no example of {name}"
        parsed = parser().parse_args(shlex.split(words[0].strip('"'), comments=True)[1:])
        assert parsed.command == name


@pytest.mark.parametrize("given", [["--help"], ["-h"], ["help"]])
def test_help_names_every_command(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(given)
    assert ended.value.code == 0
    listed = re.findall(r"^    (\w+)", capsys.readouterr().out, re.M)
    assert set(FORMS) <= set(listed)


def test_help_of_a_command_may_be_asked_for_first(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["help", "status"])
    assert ended.value.code == 0 and "collab status" in capsys.readouterr().out


def test_help_of_the_lab_has_them_too() -> None:
    text = collab("lab", "--help").stdout
    assert "  collab lab --sites" in text and re.search(r"^Exit status: .*\b2 wrong usage; 1 ", text, re.M)


def test_every_option_says_what_it_is_for() -> None:
    silent = [
        f"{name} {action.option_strings}"
        for name, form in FORMS.items()
        for action in form._actions
        if action.option_strings and not action.help
    ]
    assert not silent


def test_wrong_usage_shows_the_usage_of_the_command() -> None:
    misspelt = collab("status", "--wach")
    assert misspelt.returncode == 2 and misspelt.stderr.startswith("usage: collab status "), misspelt.stderr
    assert "collab status: error: unrecognized arguments: --wach [cli.usage]" in misspelt.stderr
    bare = collab("run")
    assert bare.returncode == 2, bare.stderr
    assert bare.stderr.endswith("the following arguments are required: SCRIPT [cli.usage]\n"), bare.stderr


def completed(*words: str) -> list[str]:
    script = collab("completion", "bash")
    assert script.returncode == 0, script.stderr
    asked = f"{script.stdout}\nCOMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _collab\n"
    done = subprocess.run(
        ["bash", "-u"], input=asked + 'printf "%s\\n" "${COMPREPLY[@]-}"', capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_and_words() -> None:
    assert completed("collab", "") == list(FORMS)
    assert completed("collab", "sta") == ["status"]
    assert completed("collab", "status", "--w") == ["--watch"]
    assert completed("collab", "plan", "--dtype", "") == ["fp32", "bf16"]
    assert completed("collab", "run", "tr") == [], "bash itself completes files"


def test_zsh_completes_every_command_and_option() -> None:
    script = collab("completion", "zsh").stdout
    for name, form in FORMS.items():
        assert re.search(rf"'{name}:", script), name
        (case,) = re.findall(rf"^      {name}\) found=\((.*)\) ;;$", script, re.M)
        told = {word.partition(":")[0] for word in shlex.split(case)}
        assert told == {word for action in form._actions for word in action.option_strings}
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n"], input=script, text=True, check=True, timeout=60)


def test_a_misspelt_command_or_option_names_what_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats"]) == 2
    assert capsys.readouterr().err == "collab: there is no command 'stats'; the nearest is status [cli.no-command]\n"
    with pytest.raises(SystemExit):
        main(["run", "--sit", "tokyo", "train.py"])
    assert "unrecognized arguments: --sit" in capsys.readouterr().err, "an option that is cut short is not guessed"
