/**
 * The command line: finds the command, prints help, and turns what goes wrong into one sentence and
 * an exit code: 0 done, 1 failed, 2 wrong usage.
 */
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { reasonOf } from '../core/log.ts';
import { nearestOf } from '../core/nearest-word.ts';
import { accountsCreateCommand, accountsListCommand, accountsUpdateCommand } from './accounts.ts';
import { agentsClaudeCommand, agentsCodexCommand } from './agents.ts';
import { auditCommand } from './audit.ts';
import {
  budgetsCreateCommand,
  budgetsDeleteCommand,
  budgetsListCommand,
  budgetsUpdateCommand,
} from './budgets.ts';
import { checkCommand } from './check.ts';
import { completionCommand } from './completion.ts';
import { type Command, Invocation, UsageError } from './command.ts';
import { creditCommand, debitCommand } from './credit.ts';
import { enginesCommand, enginesPullCommand } from './engines.ts';
import { keysCreateCommand, keysListCommand, keysRevokeCommand } from './keys.ts';
import { accountsLimitCommand, keysLimitCommand } from './limits.ts';
import { modelsCommand, modelsPullCommand } from './models.ts';
import { moveCommand } from './move.ts';
import { refundCommand } from './refund.ts';
import { serveCommand } from './serve.ts';
import { revision, version } from './server-start.ts';
import { signInCommand } from './sign-in.ts';
import { signingKeysListCommand, signingKeysRotateCommand } from './signing-keys.ts';
import { type Console, printableConsole } from './terminal.ts';
import { usageCommand } from './usage.ts';
import { verifyCommand } from './verify.ts';

/** Every command, in the order of the overview. */
export const COMMANDS: readonly Command[] = [
  serveCommand,
  signInCommand,
  keysCreateCommand,
  keysListCommand,
  keysLimitCommand,
  keysRevokeCommand,
  accountsListCommand,
  accountsCreateCommand,
  accountsUpdateCommand,
  accountsLimitCommand,
  budgetsListCommand,
  budgetsCreateCommand,
  budgetsUpdateCommand,
  budgetsDeleteCommand,
  creditCommand,
  debitCommand,
  refundCommand,
  usageCommand,
  modelsCommand,
  modelsPullCommand,
  enginesCommand,
  enginesPullCommand,
  agentsCodexCommand,
  agentsClaudeCommand,
  auditCommand,
  verifyCommand,
  signingKeysListCommand,
  signingKeysRotateCommand,
  moveCommand,
  checkCommand,
  completionCommand(() =>
    COMMANDS.map((command) => ({ ...command, options: Object.keys(optionsOf(command)) })),
  ),
];

/** Runs the command of a command line and gives its exit code. */
export async function runCommand(given: Console): Promise<number> {
  const console = printableConsole(given);
  const [first, second] = console.argv;
  if (first === undefined || first === 'help' || first === '--help' || first === '-h') {
    console.stdout.write(overview());
    return first === undefined ? 2 : 0;
  }
  if (first === '--version' || first === '-v' || first === 'version') {
    console.stdout.write(`farebox ${version()} (${revision()})\n`);
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
  const isHelp = second === '--help' || second === '-h' || second === 'help';
  const list = `${lines(group)}\n\n"farebox <command> --help" says more about one.\n`;
  if (group.length > 0 && isHelp) {
    console.stdout.write(list);
    return 0;
  }
  if (group.length > 0 && (second === undefined || second.startsWith('-'))) {
    console.stderr.write(list);
    return 2;
  }
  const asked = group.length > 0 ? `${first} ${second}` : first;
  const known =
    group.length > 0
      ? group.map(({ name }) => name)
      : COMMANDS.map(({ name }) => name.split(' ')[0] ?? '');
  const near = nearestOf(asked, new Set(known));
  const guess = near === undefined ? '' : ` Did you mean "${near}"?`;
  const message = `There is no command "${asked}".${guess}`;
  if (console.argv.includes('--json')) writeJsonError(console, message, 'usage');
  else console.stderr.write(`${message}\n\n${group.length > 0 ? list : overview()}`);
  return 2;
}

/** A failure for programs: one JSON document where the answer would be. */
function writeJsonError(console: Console, message: string, code: 'usage' | 'failed'): void {
  console.stdout.write(`${JSON.stringify({ error: { code, message } }, undefined, 2)}\n`);
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
    const where = { ...console, env: environmentWith(console, values) };
    return (await command.run(new Invocation(where, given, values))) ?? 0;
  } catch (error) {
    // Whatever a command throws ends here, as one sentence for the person at the terminal.
    const isUsage = error instanceof UsageError || isParseError(error);
    const message = isParseError(error) ? parseProblem(error, command) : reasonOf(error);
    if (argv.includes('--json')) writeJsonError(console, message, isUsage ? 'usage' : 'failed');
    else console.stderr.write(`${message}\n${isUsage ? `\n${helpOf(command)}` : ''}`);
    return isUsage ? 2 : 1;
  }
}

/** Options that stand for variables of the environment; relative to the working folder. */
const VARIABLES = { config: 'FAREBOX_CONFIG', data: 'FAREBOX_DATA', port: 'PORT' } as const;

function environmentWith({ env }: Console, values: Readonly<Record<string, unknown>>) {
  const given = Object.entries(VARIABLES).flatMap(([option, variable]) => {
    const value = values[option];
    return typeof value === 'string' ? [[variable, value] as const] : [];
  });
  return given.length === 0 ? env : { ...env, ...Object.fromEntries(given) };
}

/** Node's words for an option that is not there speak of something else. */
function parseProblem(error: Error, command: Command): string {
  const unknown = /^Unknown option '(-[^']*)'/.exec(error.message)?.[1];
  if (unknown === undefined) return error.message;
  const known = Object.keys(optionsOf(command)).map((name) => `--${name}`);
  const near = nearestOf(unknown, known);
  const guess = near === undefined ? '' : ` (did you mean "${near}"?)`;
  return `"${command.name}" has no option "${unknown}"${guess}`;
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
    config: { type: 'string' },
    data: { type: 'string' },
  };
}

function isParseError(error: unknown): error is TypeError {
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
  return `farebox: a paid inference API that you own\n\nCommands:\n${lines(COMMANDS)}\n\n"farebox <command> --help" says more about one. Every command takes --json,\n--config <file> (FAREBOX_CONFIG) and --data <folder> (FAREBOX_DATA).\n`;
}

/** What `farebox <command> --help` prints. */
export function helpOf(command: Command): string {
  const details = command.details === '' ? '' : `${command.details}\n`;
  return `${command.summary}\n\nUsage: farebox ${command.usage}\n${details}`;
}
