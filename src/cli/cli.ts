/**
 * The command line: finds the command, prints help, and turns what goes wrong into one sentence and
 * an exit code: 0 done, 1 failed, 2 wrong usage.
 */
import { parseArgs } from 'node:util';
import { reasonOf } from '../kernel/log.ts';
import type { Command, Console } from './command.ts';
import { UsageError } from './command.ts';
import { serveCommand } from './serve.ts';

export type { Console } from './command.ts';

const COMMANDS: readonly Command[] = [serveCommand];

export async function runCommand(console: Console): Promise<number> {
  const [name, ...rest] = console.argv;
  if (name === undefined || name === 'help' || name === '--help' || name === '-h') {
    console.stdout.write(overview());
    return name === undefined ? 2 : 0;
  }
  const command = COMMANDS.find((one) => one.name === name);
  if (command === undefined) {
    console.stderr.write(`There is no command "${name}".\n\n${overview()}`);
    return 2;
  }
  return runOne(console, command, rest);
}

async function runOne(
  console: Console,
  command: Command,
  argv: readonly string[],
): Promise<number> {
  try {
    const { values, positionals } = parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        ...command.options,
        help: { type: 'boolean', short: 'h' },
        json: { type: 'boolean' },
      },
    });
    if (values['help'] === true) {
      console.stdout.write(helpOf(command));
      return 0;
    }
    return await command.run({ console, values, positionals });
  } catch (error) {
    // Whatever a command throws ends here, as one sentence for the person at the terminal.
    const isUsage = error instanceof UsageError || isParseError(error);
    console.stderr.write(`${reasonOf(error)}\n`);
    if (isUsage) console.stderr.write(`\n${helpOf(command)}`);
    return isUsage ? 2 : 1;
  }
}

function isParseError(error: unknown): boolean {
  return (
    error instanceof TypeError &&
    String((error as { code?: unknown }).code).startsWith('ERR_PARSE_ARGS')
  );
}

function overview(): string {
  const width = Math.max(...COMMANDS.map((command) => command.name.length));
  const lines = COMMANDS.map((command) => `  ${command.name.padEnd(width)}  ${command.summary}`);
  return `farebox: a paid inference API that you own\n\nCommands:\n${lines.join('\n')}\n\n"farebox <command> --help" says more about one. Every command takes --json.\n`;
}

function helpOf(command: Command): string {
  return `${command.summary}\n\nUsage: farebox ${command.usage}\n${command.details}\n`;
}
