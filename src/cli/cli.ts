/**
 * The command line: finds the command, prints help, and turns what goes wrong into one sentence and
 * an exit code: 0 done, 1 failed, 2 wrong usage.
 */
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { reasonOf } from '../core/log.ts';
import { nearestOf } from '../core/nearest.ts';
import { accountsCreateCommand, accountsListCommand, accountsUpdateCommand } from './accounts.ts';
import { agentsClaudeCommand, agentsCodexCommand } from './agents.ts';
import { auditCommand } from './audit.ts';
import { checkCommand } from './check.ts';
import { type Command, Invocation, UsageError } from './command.ts';
import { creditCommand, debitCommand } from './credit.ts';
import { enginesCommand, enginesPullCommand } from './engines.ts';
import { keysCreateCommand, keysListCommand, keysRevokeCommand } from './keys.ts';
import { modelsCommand, modelsPullCommand } from './models.ts';
import { moveCommand } from './move.ts';
import { refundCommand } from './refund.ts';
import { serveCommand } from './serve.ts';
import { revision } from './serving.ts';
import { signInCommand } from './sign-in.ts';
import { type Console, printableConsole } from './terminal.ts';

/** Every command, in the order of the overview. */
export const COMMANDS: readonly Command[] = [
  serveCommand,
  signInCommand,
  keysCreateCommand,
  keysListCommand,
  keysRevokeCommand,
  accountsListCommand,
  accountsCreateCommand,
  accountsUpdateCommand,
  creditCommand,
  debitCommand,
  refundCommand,
  modelsCommand,
  modelsPullCommand,
  enginesCommand,
  enginesPullCommand,
  agentsCodexCommand,
  agentsClaudeCommand,
  auditCommand,
  moveCommand,
  checkCommand,
];

/** Runs the command of a command line and gives its exit code. */
export async function runCommand(given: Console): Promise<number> {
  const console = printableConsole(given);
  const [first, second] = console.argv;
  if (first === undefined || first === 'help' || first === '--help' || first === '-h') {
    console.stdout.write(overview());
    return first === undefined ? 2 : 0;
  }
  if (first === '--version' || first === 'version') {
    console.stdout.write(`farebox ${revision()}\n`);
    return 0;
  }
  const command =
    COMMANDS.find((one) => one.name === `${first} ${second}`) ??
    COMMANDS.find((one) => one.name === first);
  if (command === undefined) return unknownCommand(console, first, second);
  return runOne(console, command, console.argv.slice(command.name.split(' ').length));
}

/** `farebox keys` and `farebox keys --help` list the commands that start with the word. */
function unknownCommand(console: Console, first: string, second: string | undefined): number {
  const group = COMMANDS.filter((one) => one.name.startsWith(`${first} `));
  if (group.length > 0) {
    const isHelp = second === '--help' || second === '-h' || second === 'help';
    (isHelp ? console.stdout : console.stderr).write(
      `${lines(group)}\n\n"farebox <command> --help" says more about one.\n`,
    );
    return isHelp ? 0 : 2;
  }
  const words = COMMANDS.map((one) => one.name.split(' ')[0] ?? '');
  const near = nearestOf(first, new Set(words));
  const guess = near === undefined ? '' : ` Did you mean "${near}"?`;
  console.stderr.write(`There is no command "${first}".${guess}\n\n${overview()}`);
  return 2;
}

async function runOne(
  console: Console,
  command: Command,
  argv: readonly string[],
): Promise<number> {
  try {
    const { values, positionals } = parseArgs({
      args: argv.map(protectNegative),
      allowPositionals: true,
      options: optionsOf(command),
    });
    if (values['help'] === true) {
      console.stdout.write(helpOf(command));
      return 0;
    }
    const given = positionals.map((word) => word.replace(NEGATIVE_MARK, ''));
    if (given[0] !== undefined && command.takesWords !== true) {
      throw new UsageError(`"${given[0]}" is one word too many`);
    }
    return (await command.run(new Invocation(console, given, values))) ?? 0;
  } catch (error) {
    // Whatever a command throws ends here, as one sentence for the person at the terminal.
    const isUsage = error instanceof UsageError || isParseError(error);
    console.stderr.write(`${reasonOf(error)}\n`);
    if (isUsage) console.stderr.write(`\n${helpOf(command)}`);
    return isUsage ? 2 : 1;
  }
}

/** A line of the help that begins with `--name` is an option; with `<…>` behind it takes a text. */
function optionsOf({ details }: Command): NonNullable<ParseArgsConfig['options']> {
  const described = [...details.matchAll(/^ +--([a-z-]+)( <)?/gm)].map(
    ([, name = '', value]) =>
      [name, { type: value === undefined ? ('boolean' as const) : ('string' as const) }] as const,
  );
  return {
    ...Object.fromEntries(described),
    help: { type: 'boolean', short: 'h' },
    json: { type: 'boolean' },
  };
}

function isParseError(error: unknown): boolean {
  return (
    error instanceof TypeError &&
    String((error as { code?: unknown }).code).startsWith('ERR_PARSE_ARGS')
  );
}

/** `-5` is an amount and not an option; it is marked so that the parser leaves it alone. */
const NEGATIVE_MARK = 'amount:';

function protectNegative(word: string): string {
  return /^-[\d.]/.test(word) ? NEGATIVE_MARK + word : word;
}

function lines(commands: readonly Command[]): string {
  const width = Math.max(...commands.map((command) => command.name.length));
  return commands.map(({ name, summary }) => `  ${name.padEnd(width)}  ${summary}`).join('\n');
}

function overview(): string {
  return `farebox: a paid inference API that you own\n\nCommands:\n${lines(COMMANDS)}\n\n"farebox <command> --help" says more about one. Every command takes --json.\n`;
}

/** What `farebox <command> --help` prints. */
export function helpOf(command: Command): string {
  const details = command.details === '' ? '' : `${command.details}\n`;
  return `${command.summary}\n\nUsage: farebox ${command.usage}\n${details}`;
}
