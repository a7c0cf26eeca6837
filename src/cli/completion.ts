/** `farebox completion`: a script that completes commands and options in a shell. */
import { type Command, UsageError } from './command.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
type Shell = (typeof SHELLS)[number];

/** What can be typed: the words of a command, and its options. */
export interface Completable {
  readonly name: string;
  readonly summary: string;
  /** Without their dashes. */
  readonly options: readonly string[];
}

/** The command; what it completes is known to whoever lists the commands. */
export function completionCommand(all: () => readonly Completable[]): Command {
  return {
    name: 'completion',
    takesWords: true,
    summary: 'Print a script that completes commands in your shell',
    usage: `completion <${SHELLS.join('|')}>`,
    details: `
Examples:
  source <(farebox completion bash)                                  # ~/.bashrc
  source <(farebox completion zsh)                                   # ~/.zshrc
  farebox completion fish > ~/.config/fish/completions/farebox.fish`,
    run: async (invocation) => {
      const shell = invocation.only(`Name one shell: ${SHELLS.join(', ')}`);
      const known = SHELLS.find((one) => one === shell);
      if (known === undefined) {
        throw new UsageError(
          `There is no completion for "${shell}"; there is ${SHELLS.join(', ')}`,
        );
      }
      invocation.console.stdout.write(scriptFor(known, all()));
      await Promise.resolve();
    },
  };
}

function scriptFor(shell: Shell, all: readonly Completable[]): string {
  if (shell === 'fish') return fishScript(all);
  const script = bashScript(all);
  return shell === 'bash' ? script : `autoload -U +X bashcompinit && bashcompinit\n${script}`;
}

/** The first words, and behind each what may follow it. */
function bashScript(all: readonly Completable[]): string {
  const first = [...new Set(all.map(({ name }) => name.split(' ')[0] ?? ''))];
  const cases = (isTwoWords: boolean): string =>
    all
      .filter(({ name }) => name.includes(' ') === isTwoWords)
      .map(({ name, options }) => {
        const words = options.map((option) => `--${option}`).join(' ');
        return `    "${name}") words="${words}" ;;`;
      })
      .join('\n');
  const groups = first.flatMap((word) => {
    const second = all.flatMap(({ name }) =>
      name.startsWith(`${word} `) ? [name.split(' ')[1]] : [],
    );
    return second.length === 0 ? [] : [`    "${word}") more="${second.join(' ')}" ;;`];
  });
  return `_farebox() {
  local current="\${COMP_WORDS[COMP_CWORD]}" words="" more=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "${first.join(' ')} help" -- "$current"))
    return
  fi
  case "\${COMP_WORDS[1]}" in
${groups.join('\n')}
  esac
  case "\${COMP_WORDS[1]} \${COMP_WORDS[2]}" in
${cases(true)}
    *) case "\${COMP_WORDS[1]}" in
${cases(false)}
    esac ;;
  esac
  [ "$COMP_CWORD" -eq 2 ] && words="$words $more"
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  [ "\${#COMPREPLY[@]}" -eq 0 ] && COMPREPLY=($(compgen -f -- "$current"))
}
complete -F _farebox farebox
`;
}

function fishScript(all: readonly Completable[]): string {
  const lines = all.flatMap(({ name, summary, options }) => {
    const [first = '', second] = name.split(' ');
    const about = summary.replaceAll("'", '');
    const seen = `__fish_seen_subcommand_from ${first}`;
    const offer =
      second === undefined
        ? `complete -c farebox -n __fish_use_subcommand -f -a ${first} -d '${about}'`
        : `complete -c farebox -n '${seen}' -f -a ${second} -d '${about}'`;
    return [offer, ...options.map((option) => `complete -c farebox -n '${seen}' -l ${option}`)];
  });
  return `${[...new Set(lines)].join('\n')}\n`;
}
