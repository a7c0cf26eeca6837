/**
 * The command line: finds the command, prints help, and reports a failure as one sentence and an exit
 * code: 0 success, 1 failure, 2 wrong usage.
 */
import { type CommandUnknownOpts, CommanderError } from '@commander-js/extra-typings';
import { reasonOf } from '../core/log.ts';
import { didYouMean } from '../core/nearest-word.ts';
import { accountsCommands } from './accounts.ts';
import { agentsCommands } from './agents.ts';
import { auditCommand } from './audit.ts';
import { backupCommand, restoreCommand } from './backup.ts';
import { booksCommand } from './books.ts';
import { budgetsCommands } from './budgets.ts';
import { checkCommand } from './check.ts';
import { Cli, UsageError, commandsBelow, nameOf, summaryOf } from './command.ts';
import { completionCommand } from './completion.ts';
import { creditCommands } from './credit.ts';
import { enginesCommands } from './engines.ts';
import { keysCommands } from './keys.ts';
import { limitCommands } from './limits.ts';
import { ownPricesCommand } from './own-prices.ts';
import { modelsCommands } from './models.ts';
import { moveCommand } from './move.ts';
import { pricesCommands } from './prices.ts';
import { refundCommand } from './refund.ts';
import { requestCommand } from './request.ts';
import { serveCommand } from './serve.ts';
import { revision, version } from './server-start.ts';
import { signInCommand } from './sign-in.ts';
import { signingKeysCommands } from './signing-keys.ts';
import { type Console, printableConsole } from './terminal.ts';
import { usageCommand } from './usage.ts';
import { verifyCommand } from './verify.ts';

/** In the order of `--help`. */
const COMMANDS: readonly ((cli: Cli) => void)[] = [
  serveCommand,
  signInCommand,
  keysCommands,
  accountsCommands,
  limitCommands,
  ownPricesCommand,
  budgetsCommands,
  creditCommands,
  refundCommand,
  usageCommand,
  requestCommand,
  booksCommand,
  modelsCommands,
  pricesCommands,
  enginesCommands,
  agentsCommands,
  auditCommand,
  verifyCommand,
  signingKeysCommands,
  backupCommand,
  restoreCommand,
  moveCommand,
  checkCommand,
  completionCommand,
];
const HELP_COLUMNS = 100;

export async function runCommand(console: Console): Promise<number> {
  const cli = commandLine(printableConsole(console));
  const { argv } = cli.console;
  if (argv.length === 0) {
    cli.program.outputHelp();
    return 2;
  }
  try {
    await cli.program.parseAsync(argv, { from: 'user' });
    return cli.exitCode;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0; // help or version
    if (error instanceof CommanderError && error.code === 'commander.help') return 2; // of a group
    reportFailure(cli, error);
    return isUsage(error) ? 2 : 1;
  }
}

export function commandLine(console: Console): Cli {
  const cli = new Cli(console);
  const { stdout, stderr } = console;
  const release = `farebox ${version()} (${revision()})`;
  cli.program
    .version(release, '-v, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
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
      // Joins the lines of a paragraph, so that the terminal wraps it. Indented lines stay as they are.
      commandDescription: (command) => command.description().replaceAll(/(?<!\n)\n(?![\n ])/g, ' '),
    });
  for (const add of COMMANDS) add(cli);
  cli.program.command('version', { hidden: true }).action(() => void stdout.write(`${release}\n`));
  return cli;
}

function isUsage(error: unknown): boolean {
  return error instanceof UsageError || error instanceof CommanderError;
}

/** Prints a sentence, and where the help is if the usage is wrong; with `--json` one JSON document. */
function reportFailure({ console, program }: Cli, error: unknown): void {
  const { argv, stdout, stderr } = console;
  const command = argv.reduce<CommandUnknownOpts>(
    (found, word) => found.commands.find((one) => one.name() === word) ?? found,
    program,
  );
  const message = error instanceof CommanderError ? sentenceOf(error, command) : reasonOf(error);
  if (argv.includes('--json')) {
    const code = isUsage(error) ? 'usage' : 'failed';
    stdout.write(`${JSON.stringify({ error: { code, message } }, undefined, 2)}\n`);
  } else {
    stderr.write(`${message}\n${isUsage(error) ? usageLines(command) : ''}`);
  }
}

/** Not the whole help, because the error would scroll out of sight. */
function usageLines(command: CommandUnknownOpts): string {
  const words = command.parent === null ? '' : ` ${nameOf(command)}`;
  const usage = command.createHelp().commandUsage(command);
  return `\nUsage: ${usage}\nHelp: farebox${words} --help\n`;
}

function sentenceOf({ code, message }: CommanderError, command: CommandUnknownOpts): string {
  const [, quoted = ''] = /'([^']*)'/.exec(message) ?? [];
  const { args, registeredArguments } = command;
  switch (code) {
    case 'commander.unknownOption': {
      const option = quoted.replace(/=.*/s, '');
      const known = command.options.flatMap(({ long }) => long ?? []);
      return `"${nameOf(command)}" has no option "${option}"${didYouMean(option, known)}`;
    }
    case 'commander.unknownCommand': {
      const isTop = command.parent === null;
      const name = isTop ? quoted : `${command.name()} ${quoted}`;
      const known = commandsBelow(command).map((one) =>
        isTop ? (nameOf(one).split(' ')[0] ?? '') : nameOf(one),
      );
      return `There is no command "${name}"${didYouMean(name, new Set(known))}`;
    }
    case 'commander.missingArgument': {
      const missing = registeredArguments.find((argument) => argument.name() === quoted);
      return `The argument <${quoted}> is missing: ${missing?.description ?? ''}`;
    }
    case 'commander.excessArguments':
      return `Unexpected argument "${args[registeredArguments.length] ?? ''}"`;
    case 'commander.invalidArgument': {
      const [, name = '', problem = message] =
        /^error: option '(--[\w-]+)[^']*' argument '.*?' is invalid\. (.*)$/s.exec(message) ??
        /^error: command-argument value '.*?' is invalid for argument '(.*?)'\. (.*)$/s.exec(
          message,
        ) ??
        [];
      return `${name.startsWith('--') ? name : `The argument <${name}>`} ${problem}`;
    }
    default: {
      const text = message.replace(/^error: /, '');
      return text.charAt(0).toUpperCase() + text.slice(1);
    }
  }
}
