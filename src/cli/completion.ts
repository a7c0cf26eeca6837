/** `farebox completion`: prints a shell script that completes commands and options. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { type Cli, nameOf, oneOf, summaryOf } from './command.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;

export function completionCommand({ program, console }: Cli): void {
  program
    .command('completion')
    .description(`Print a script that completes commands in a shell

Examples:
  source <(farebox completion bash)                                  # ~/.bashrc
  source <(farebox completion zsh)                                   # ~/.zshrc
  farebox completion fish > ~/.config/fish/completions/farebox.fish`)
    .argument('<shell>', SHELLS.join(', '), oneOf(SHELLS))
    .action((shell) => {
      const script = shell === 'fish' ? fishScript(program) : bashScript(program);
      const loader = shell === 'zsh' ? 'autoload -U +X bashcompinit && bashcompinit\n' : '';
      console.stdout.write(loader + script);
    });
}

/** The words that may follow a command: its subcommands, its options and the global options. */
function wordsAfter(command: CommandUnknownOpts, program: CommandUnknownOpts): string {
  const options = [...command.options, ...(command === program ? [] : program.options)];
  const words = [
    ...command.commands.map((one) => one.name()),
    ...options.map(({ long }) => long ?? ''),
  ];
  return [...words, '--help'].join(' ');
}

function bashScript(program: CommandUnknownOpts): string {
  const cases = program.commands
    .flatMap((one) => [one, ...one.commands])
    .map((command) => `    "${nameOf(command)}") words="${wordsAfter(command, program)}" ;;`);
  return `_farebox() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words="${wordsAfter(program, program)}" first="\${COMP_WORDS[1]}"
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
    const seen = `-n '__fish_seen_subcommand_from ${first.name()}'`;
    const offer = (condition: string, command: CommandUnknownOpts) =>
      `complete -c farebox ${condition} -f -a ${command.name()} -d '${summaryOf(command).replaceAll("'", '')}'`;
    return [
      offer('-n __fish_use_subcommand', first),
      ...first.commands.map((one) => offer(seen, one)),
      ...[first, ...first.commands, program]
        .flatMap(({ options }) => options)
        .map(({ long }) => `complete -c farebox ${seen} -l ${long?.slice(2) ?? ''}`),
    ];
  });
  return `${[...new Set(lines)].join('\n')}\n`;
}
