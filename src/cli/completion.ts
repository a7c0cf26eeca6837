/** `farebox completion`: a script that completes commands and options in a shell, from the commands. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { type Cli, UsageError } from './command.ts';

const SHELLS: Readonly<Record<string, (program: CommandUnknownOpts) => string>> = {
  bash: bashScript,
  zsh: (program) => `autoload -U +X bashcompinit && bashcompinit\n${bashScript(program)}`,
  fish: fishScript,
};
const NAMES = Object.keys(SHELLS);

export function completionCommand({ program, console }: Cli): void {
  program
    .command('completion')
    .description(`Print a script that completes commands in your shell

Examples:
  source <(farebox completion bash)                                  # ~/.bashrc
  source <(farebox completion zsh)                                   # ~/.zshrc
  farebox completion fish > ~/.config/fish/completions/farebox.fish`)
    .argument(`<${NAMES.join('|')}>`, `Name one shell: ${NAMES.join(', ')}`)
    .action((shell) => {
      const script = SHELLS[shell];
      if (script === undefined) {
        throw new UsageError(`There is no completion for "${shell}"; there is ${NAMES.join(', ')}`);
      }
      console.stdout.write(script(program));
    });
}

/** What may follow a command: the commands below it, and its options with those of all commands. */
function wordsAfter(command: CommandUnknownOpts): string {
  const { commands, options, parent } = command;
  const own = parent === null ? options : [...options, ...parentOptions(command)];
  const words = [...commands.map((one) => one.name()), ...own.map(({ long }) => long ?? '')];
  return [...words, '--help'].join(' ');
}

function parentOptions({ parent }: CommandUnknownOpts): CommandUnknownOpts['options'] {
  return parent === null ? [] : [...parent.options, ...parentOptions(parent)];
}

function bashScript(program: CommandUnknownOpts): string {
  const cases = program.commands
    .flatMap((one) => [one, ...one.commands])
    .map((command) => {
      const { parent } = command;
      const name =
        parent === program ? command.name() : `${parent?.name() ?? ''} ${command.name()}`;
      return `    "${name}") words="${wordsAfter(command)}" ;;`;
    });
  return `_farebox() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words="${wordsAfter(program)}" first="\${COMP_WORDS[1]}"
  local at
  [ "$COMP_CWORD" -gt 1 ] && for at in "$first" "$first \${COMP_WORDS[2]}"; do case "$at" in
${cases.join('\n')}
  esac; done
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [ "\${#COMPREPLY[@]}" -eq 0 ] && COMPREPLY=($(compgen -f -- "$current"))
}
complete -F _farebox farebox
`;
}

function fishScript(program: CommandUnknownOpts): string {
  const lines = program.commands.flatMap((first) => {
    const seen = `__fish_seen_subcommand_from ${first.name()}`;
    const offered = [first, ...first.commands];
    return [
      `complete -c farebox -n __fish_use_subcommand -f -a ${first.name()} -d '${aboutOf(first)}'`,
      ...first.commands.map(
        (one) => `complete -c farebox -n '${seen}' -f -a ${one.name()} -d '${aboutOf(one)}'`,
      ),
      ...[...offered, program]
        .flatMap(({ options }) => options)
        .map(({ long }) => `complete -c farebox -n '${seen}' -l ${long?.slice(2) ?? ''}`),
    ];
  });
  return `${[...new Set(lines)].join('\n')}\n`;
}

function aboutOf(command: CommandUnknownOpts): string {
  return (command.description().split('\n', 1)[0] ?? '').replaceAll("'", '');
}
