"""Write shell completion scripts from the argument parser.

Given a parser; promises a script that completes sub-commands, options and their choices, and file names
elsewhere. Knows no particular command.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Final

SHELLS: Final = ("bash", "zsh", "fish")

_BASH: Final = """\
# Completion for {prog}; source this file, or put it into bash-completion's directory.
_{prog}() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} path="" word index words files
    for ((index = 1; index < COMP_CWORD; index++)); do
        word=${{COMP_WORDS[index]}}
        case "$path/$word" in
            {paths}) path="$path/$word" ;;
        esac
    done
    case "$path" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [[ $files ]] && COMPREPLY+=($(compgen -f -- "$current"))
    return 0
}}
complete -o filenames -F _{prog} {prog}
"""

_ZSH: Final = """\
#compdef {prog}
# Completion for {prog}; put this file as _{prog} into a directory of $fpath.
_{prog}() {{
    local route="" word files
    local -a choices
    for word in ${{words[2,CURRENT-1]}}; do
        case "$route/$word" in
            {paths}) route="$route/$word" ;;
        esac
    done
    case "$route" in
{cases}
    esac
    compadd -a choices
    [[ -n $files ]] && _files
    return 0
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _{prog} "$@"; else compdef _{prog} {prog}; fi
"""


@dataclasses.dataclass(frozen=True, slots=True)
class _Node:
    """One parser of the tree: its path, and the words that may follow."""

    path: tuple[str, ...]
    commands: dict[str, str]
    options: dict[str, str]
    choices: tuple[str, ...]

    @property
    def words(self) -> str:
        return " ".join([*self.commands, *self.choices, *self.options])

    @property
    def files(self) -> str:
        """``yes`` if a file name may follow."""
        return "" if self.commands or self.choices else "yes"


def _nodes(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> Iterator[_Node]:
    commands: dict[str, str] = {}
    options: dict[str, str] = {}
    choices: list[str] = []
    children: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # noqa: SLF001 (argparse has no public view of itself)
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {item.dest: item.help or "" for item in action._choices_actions}  # noqa: SLF001
            commands |= {name: helps.get(name, "") for name in action.choices}
            children += action.choices.items()
        elif action.option_strings:
            options |= dict.fromkeys(action.option_strings, _first_words(action.help))
        elif action.choices is not None:
            choices += [str(choice) for choice in action.choices]
    yield _Node(path, commands, options, tuple(choices))
    for name, child in children:
        yield from _nodes(child, (*path, name))


def _first_words(text: str | None) -> str:
    return (text or "").split(";")[0].replace("'", "").replace("%(default)s", "")


def _fill(template: str, prog: str, nodes: list[_Node], assign: str) -> str:
    paths = " | ".join(f'"/{"/".join(node.path)}"' for node in nodes if node.path)
    cases = "\n".join(
        f'        "{"".join(f"/{part}" for part in node.path)}") '
        f"{assign.format(words=node.words, files=node.files)} ;;"
        for node in nodes
    )
    return template.format(prog=prog, paths=paths, cases=cases)


def _fish(prog: str, nodes: list[_Node]) -> str:
    lines = [f"# Completion for {prog}; put this file into fish's completions directory."]
    for node in nodes:
        siblings = " ".join(node.commands)
        seen = [f"__fish_seen_subcommand_from {part}" for part in node.path]
        unseen = [f"not __fish_seen_subcommand_from {siblings}"] if siblings else []
        when = "; and ".join([*seen, *unseen]) or "true"
        for word, text in node.commands.items():
            lines.append(f"complete -c {prog} -n '{when}' -f -a {word} -d '{_first_words(text)}'")
        lines += [f"complete -c {prog} -n '{when}' -f -a {word}" for word in node.choices]
        for option, text in node.options.items():
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"complete -c {prog} -n '{when}' {flag} -d '{text}'")
    return "\n".join(lines) + "\n"


def completion_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """Write the script for one shell.

    Args:
        parser: the whole command line.
        shell: one of `SHELLS`.
    """
    nodes = list(_nodes(parser))
    if shell == "fish":
        return _fish(parser.prog, nodes)
    if shell == "zsh":
        return _fill(_ZSH, parser.prog, nodes, "choices=({words}) files={files}")
    return _fill(_BASH, parser.prog, nodes, 'words="{words}" files={files}')
