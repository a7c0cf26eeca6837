/**
 * The command line: finds the command, prints help, and turns what goes wrong into one sentence and
 * an exit code: 0 done, 1 failed, 2 wrong usage.
 */
import { type CommandUnknownOpts, CommanderError } from '@commander-js/extra-typings';
import { reasonOf } from '../core/log.ts';
import { nearestOf } from '../core/nearest-word.ts';
import { accountsCommands } from './accounts.ts';
import { agentsCommands } from './agents.ts';
import { auditCommand } from './audit.ts';
import { budgetsCommands } from './budgets.ts';
import { checkCommand } from './check.ts';
import { Cli, UsageError, guessOf } from './command.ts';
import { completionCommand } from './completion.ts';
import { creditCommands } from './credit.ts';
import { enginesCommands } from './engines.ts';
import { keysCommands } from './keys.ts';
import { limitCommands } from './limits.ts';
import { modelsCommands } from './models.ts';
import { moveCommand } from './move.ts';
import { refundCommand } from './refund.ts';
import { serveCommand } from './serve.ts';
import { revision, version } from './server-start.ts';
import { signInCommand } from './sign-in.ts';
import { signingKeysCommands } from './signing-keys.ts';
import { type Console, printableConsole } from './terminal.ts';
import { usageCommand } from './usage.ts';
import { verifyCommand } from './verify.ts';

/** In the order of the overview. */
const COMMANDS: readonly ((cli: Cli) => void)[] = [
  serveCommand,
  signInCommand,
  keysCommands,
  accountsCommands,
  limitCommands,
  budgetsCommands,
  creditCommands,
  refundCommand,
  usageCommand,
  modelsCommands,
  enginesCommands,
  agentsCommands,
  auditCommand,
  verifyCommand,
  signingKeysCommands,
  moveCommand,
  checkCommand,
  completionCommand,
];

/** Runs the command of a command line and gives its exit code. */
export async function runCommand(given: Console): Promise<number> {
  const cli = commandLine(printableConsole(given));
  const { program } = cli;
  const { argv } = cli.console;
  if (argv.length === 0) {
    program.outputHelp();
    return 2;
  }
  try {
    await program.parseAsync(argv, { from: 'user' });
    return cli.exitCode;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0; // help, or the version
    if (error instanceof CommanderError && error.code === 'commander.help') return 2; // of a group
    reportFailure(cli, error);
    return isUsage(error) ? 2 : 1;
  }
}

/** Every command, for the reference page and for completion; `console` is where it prints. */
export function commandLine(console: Console): Cli {
  const cli = new Cli(console);
  const { stdout, stderr } = console;
  const release = `farebox ${version()} (${revision()})`;
  cli.program
    .version(release, '-v, --version')
    .showSuggestionAfterError(false)
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void stdout.write(text),
      writeErr: (text) => void stderr.write(text),
      outputError: () => undefined, // `reportFailure` prints it
      getOutHelpWidth: () => stdout.columns ?? HELP_COLUMNS,
      getErrHelpWidth: () => stderr.columns ?? HELP_COLUMNS,
    })
    .configureHelp({
      showGlobalOptions: true,
      visibleCommands: commandsBelow,
      subcommandTerm: nameOf,
      subcommandDescription: summaryOf,
      // Paragraphs are wrapped to the terminal; lines that begin with a space are left as they are.
      commandDescription: (command) => command.description().replaceAll(/(?<!\n)\n(?![\n ])/g, ' '),
    });
  for (const add of COMMANDS) add(cli);
  cli.program.command('version', { hidden: true }).action(() => void stdout.write(`${release}\n`));
  return cli;
}

const HELP_COLUMNS = 100;

/** The commands that do something, at any depth. */
export function commandsBelow(command: CommandUnknownOpts): CommandUnknownOpts[] {
  return command.commands.flatMap((one) => {
    const below = commandsBelow(one);
    // A group such as `keys` does nothing by itself and has no description.
    return one.description() === '' ? below : [one, ...below];
  });
}

/** The first line of a description. */
export function summaryOf(command: CommandUnknownOpts): string {
  return command.description().split('\n', 1)[0] ?? '';
}

/** `keys create`. */
export function nameOf(command: CommandUnknownOpts): string {
  const { parent } = command;
  return parent?.parent ? `${parent.name()} ${command.name()}` : command.name();
}

function isUsage(error: unknown): boolean {
  return error instanceof UsageError || error instanceof CommanderError;
}

/** Prints one sentence for the person at the terminal, or one JSON document for programs. */
function reportFailure({ console, program }: Cli, error: unknown): void {
  const { argv, stdout, stderr } = console;
  const command = commandOf(program, argv);
  const message = error instanceof CommanderError ? sentenceOf(error, command) : reasonOf(error);
  if (argv.includes('--json')) {
    const code = isUsage(error) ? 'usage' : 'failed';
    stdout.write(`${JSON.stringify({ error: { code, message } }, undefined, 2)}\n`);
  } else {
    stderr.write(`${message}\n${isUsage(error) ? `\n${command.helpInformation()}` : ''}`);
  }
}

/** The command that a command line names, as far as it names one. */
function commandOf(program: CommandUnknownOpts, argv: readonly string[]): CommandUnknownOpts {
  return argv.reduce<CommandUnknownOpts>(
    (command, word) => command.commands.find((one) => one.name() === word) ?? command,
    program,
  );
}

/** What commander found wrong, in our words. */
function sentenceOf({ code, message }: CommanderError, command: CommandUnknownOpts): string {
  const [, given = ''] = /'([^']*)'/.exec(message) ?? [];
  const { args, registeredArguments } = command;
  switch (code) {
    case 'commander.unknownOption': {
      const option = given.replace(/=.*/s, '');
      const known = command.options.flatMap(({ long }) => long ?? []);
      return `"${nameOf(command)}" has no option "${option}"${guessOf(option, known)}`;
    }
    case 'commander.unknownCommand': {
      const word = command.parent === null ? given : `${command.name()} ${given}`;
      const below = commandsBelow(command).map(nameOf);
      const known = command.parent === null ? below.map((name) => name.split(' ')[0] ?? '') : below;
      const near = nearestOf(word, new Set(known));
      return `There is no command "${word}".${near === undefined ? '' : ` Did you mean "${near}"?`}`;
    }
    case 'commander.missingArgument':
    case 'commander.excessArguments':
      return (
        registeredArguments[0]?.description ||
        `"${args[registeredArguments.length] ?? ''}" is one word too many`
      );
    case 'commander.invalidArgument': {
      const [, option = '', problem = message] =
        /^error: option '(--[\w-]+)[^']*' argument '.*?' is invalid\. (.*)$/s.exec(message) ??
        /^error: command-argument value '.*?' is invalid for argument '(.*?)'\. (.*)$/s.exec(
          message,
        ) ??
        [];
      return `${option.startsWith('--') ? option : `The ${option}`} ${problem}`;
    }
    default: {
      const text = message.replace(/^error: /, '');
      return text.charAt(0).toUpperCase() + text.slice(1);
    }
  }
}
