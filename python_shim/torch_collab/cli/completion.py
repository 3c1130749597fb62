"""`collab completion`: what makes bash and zsh complete commands and options, made of the parsers themselves."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator
from typing import Any

from torch_collab.cli import forms

_BASH = """\
# collab for bash: eval "$(collab completion bash)"
_collab() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    words={commands}
  else
    case "$command $before" in
{choices}
    *)
      if [[ "$word" == -* ]]; then
        case "$command" in
{options}
        esac
      fi
      ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _collab collab
"""

_ZSH = """\
#compdef collab
# collab for zsh: eval "$(collab completion zsh)", behind compinit
_collab() {{
  local -a found
  if (( CURRENT == 2 )); then
    found=({commands})
    _describe command found
    return
  fi
  case "$words[2] $words[CURRENT-1]" in
{choices}
  esac
  if [[ "$words[CURRENT]" == -* ]]; then
    case "$words[2]" in
{options}
    esac
    _describe option found
  else
    _files
  fi
}}
if [[ "$funcstack[1]" == _collab ]]; then _collab "$@"; else compdef _collab collab; fi
"""


def add_to(parsers: Any) -> None:
    sub = forms.add(
        parsers,
        "completion",
        "print a script that makes the shell complete collab's commands and options",
        "Prints a script for the shell to read. Options that take a file, and the name of the training script, "
        "complete to files.",
        ['eval "$(collab completion bash)"', "collab completion zsh > ~/.zfunc/_collab"],
        {0: "printed", 1: "it could not be printed"},
    )
    sub.add_argument("shell", choices=["bash", "zsh"])
    sub.set_defaults(parsers=parsers)  # parsers of the whole command line, of which this command is a part


def run(arguments: argparse.Namespace) -> int:
    parsers = arguments.parsers
    print((bash if arguments.shell == "bash" else zsh)(parsers.choices, dict(_sentences(parsers))), end="")
    return 0


def bash(commands: dict[str, argparse.ArgumentParser], _: dict[str, str]) -> str:
    choices = _cases(commands, 4, lambda name, words: f'words="{" ".join(words)}"')
    options = [
        f'        {name}) words="{" ".join(word for word, _ in _options(form))}" ;;' for name, form in commands.items()
    ]
    return _BASH.format(commands=shlex.quote(" ".join(commands)), choices=choices, options="\n".join(options))


def zsh(commands: dict[str, argparse.ArgumentParser], sentences: dict[str, str]) -> str:
    choices = _cases(commands, 4, lambda name, words: f"compadd -- {' '.join(words)}; return")
    options = [
        f"      {name}) found=({' '.join(_described(*option) for option in _options(form))}) ;;"
        for name, form in commands.items()
    ]
    told = " ".join(_described(name, sentences.get(name, "")) for name in commands)
    return _ZSH.format(commands=told, choices=choices, options="\n".join(options))


def _cases(commands: dict[str, argparse.ArgumentParser], indent: int, then: Callable[[str, list[str]], str]) -> str:
    """Shell cases for options that take one of a few words, and for commands that do."""
    lines = []
    for name, form in commands.items():
        for action in _actions(form):
            if action.choices:
                words = [shlex.quote(str(word)) for word in action.choices]
                before = "|".join(f'"{name} {word}"' for word in action.option_strings or [name])
                lines.append(f"{' ' * indent}{before}) {then(name, words)} ;;")
    return "\n".join(lines)


def _actions(form: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    yield from form._actions  # argparse has no public list of them


def _options(form: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in _actions(form):
        for word in action.option_strings:
            yield word, (action.help or "") % {"default": action.default}


def _described(word: str, sentence: str) -> str:
    return shlex.quote(f"{word}:{sentence.replace(':', ' ')}" if sentence else word)


def _sentences(parsers: Any) -> Iterator[tuple[str, str]]:
    for choice in parsers._choices_actions:
        yield choice.dest, choice.help or ""
