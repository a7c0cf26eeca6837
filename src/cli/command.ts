/** What a command is: its name, its help, and what it does. */
import type { ParseArgsConfig } from 'node:util';
import { type Config, type ConfigSource, formatProblem, loadConfig } from '../config/config.ts';

/** The terminal and the process, handed in so that tests own them. */
export interface Console {
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly cwd: string;
  readonly stdout: TextOutput;
  readonly stderr: TextOutput;
  readonly onSignal: (signal: 'SIGINT' | 'SIGTERM' | 'SIGHUP', listener: () => void) => void;
}

export interface TextOutput {
  write(text: string): unknown;
  /** Writes control characters too, for a line that is drawn again and holds nobody's words. */
  draw?(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}

export interface Invocation {
  readonly console: Console;
  readonly values: Readonly<Record<string, string | boolean | (string | boolean)[] | undefined>>;
  readonly positionals: readonly string[];
}

export interface Command {
  readonly name: string;
  /** One line for the overview. */
  readonly summary: string;
  /** Whether words other than options may follow; the others refuse them. */
  readonly takesWords?: true;
  /** After `farebox `. */
  readonly usage: string;
  /** Options and examples, lines ready to print. */
  readonly details: string;
  readonly options: NonNullable<ParseArgsConfig['options']>;
  /** Gives the exit code. */
  run(invocation: Invocation): Promise<number>;
}

/** Wrong words on the command line: answered with the help and exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** One JSON document on standard output, indented for people who read it. */
export function printJson({ console }: Invocation, value: unknown): void {
  console.stdout.write(`${JSON.stringify(value, undefined, 2)}\n`);
}

/** The configuration, or an error that names every line that is wrong. */
export async function requireConfig(console: Console): Promise<Config> {
  return (await requireSettings(console)).config;
}

/** The configuration with the files that it came from, for a server that follows them. */
export interface Settings {
  readonly config: Config;
  readonly sources: readonly ConfigSource[];
}

/** As `requireConfig`. */
export async function requireSettings(console: Console): Promise<Settings> {
  const loaded = await loadConfig({ env: console.env, cwd: console.cwd });
  if (!loaded.ok) {
    const lines = loaded.problems.map((problem) => formatProblem(problem));
    throw new Error(`The configuration is not valid:\n${lines.join('\n')}`);
  }
  for (const warning of loaded.warnings) console.stderr.write(`${formatProblem(warning)}\n`);
  return loaded;
}
