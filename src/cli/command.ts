/**
 * Shared parts of the commands: output, parsers of option values, the configuration, and the
 * database with its accounts.
 */
import { statSync } from 'node:fs';
import {
  Command,
  type CommandUnknownOpts,
  InvalidArgumentError,
} from '@commander-js/extra-typings';
import { type Config, type ConfigSource, formatProblem, loadConfig } from '../config/config.ts';
import { type Clock, DAY_MS, HOUR_MS, MINUTE_MS, isoTime, systemClock } from '../core/clock.ts';
import { type Ids, systemIds } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { type Nano, formatUsd, usdToNano } from '../core/money.ts';
import { didYouMean } from '../core/nearest-word.ts';
import { walletKind } from '../core/addresses.ts';
import { type Account, accountIdOf, walletOfAccount } from '../identity/identity.ts';
import { logWriter } from '../observability/log-writer.ts';
import { type Stores, openStores } from '../server/stores.ts';
import type { Columns, Console } from './terminal.ts';

export const ACCOUNT = [
  '--account <account>',
  'id, name or wallet address of the account (default: the owner)',
] as const;
export const APPLIES_SOON = 'A running server applies the change within 3 seconds.';

/** A wrong command line: prints the usage line and exits with code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** One run of the command line. Each command adds itself to `program` and prints through this. */
export class Cli {
  console: Console;
  exitCode = 0;
  readonly program = new Command('farebox')
    .description('A paid inference API that you own')
    .option('--json', 'print JSON; "serve" writes its log as JSON')
    .option('--config <file>', 'configuration file (default: FAREBOX_CONFIG, else farebox.yaml)')
    .option(
      '--data <folder>',
      'folder of database, keys, models and media (default: FAREBOX_DATA, else ./data)',
    );

  constructor(console: Console) {
    this.console = console;
    this.program.hook('preAction', () => {
      const { config, data } = this.program.opts();
      this.setEnvironment({ FAREBOX_CONFIG: config, FAREBOX_DATA: data });
    });
  }

  get isJson(): boolean {
    return this.program.opts().json === true;
  }

  /** The command that groups others, such as `keys`; created on first use. */
  group(name: string): CommandUnknownOpts {
    const existing = this.program.commands.find((command) => command.name() === name);
    return existing ?? this.program.command(name);
  }

  setEnvironment(values: Readonly<Record<string, string | undefined>>): void {
    const set = Object.entries(values).filter(([, value]) => value !== undefined);
    this.console = { ...this.console, env: { ...this.console.env, ...Object.fromEntries(set) } };
  }

  print(json: unknown, text: string): void {
    this.console.stdout.write(this.isJson ? `${JSON.stringify(json, undefined, 2)}\n` : text);
  }

  /**
   * Prints a list of any length with one page in memory: a JSON array, or a table. The table reads
   * all pages twice, because the first pass measures the columns.
   */
  async printPages<Row>(list: {
    readonly pages: () => AsyncIterable<readonly Row[]>;
    readonly json: (row: Row) => unknown;
    readonly columns: Columns;
    readonly cells: (row: Row) => readonly string[];
    /** Printed instead of a table without rows. */
    readonly empty: string;
  }): Promise<void> {
    const { stdout } = this.console;
    const { pages, json, columns, cells } = list;
    if (this.isJson) {
      let separator = '[';
      for await (const page of pages()) {
        for (const row of page) {
          const item = JSON.stringify(json(row), undefined, 2).replaceAll('\n', '\n  ');
          stdout.write(`${separator}\n  ${item}`);
          separator = ',';
        }
      }
      stdout.write(separator === '[' ? '[]\n' : '\n]\n');
      return;
    }
    let rows = 0;
    for await (const page of pages()) {
      columns.fit(page.map(cells));
      rows += page.length;
    }
    stdout.write(rows === 0 ? list.empty : columns.head());
    for await (const page of pages()) stdout.write(columns.lines(page.map(cells)));
  }

  /** Loads the configuration. Throws one error that lists every problem with its line. */
  async settings(): Promise<Settings> {
    const { env, cwd, stderr } = this.console;
    const loaded = await loadConfig({ env, cwd });
    if (!loaded.ok) {
      const lines = loaded.problems.map((problem) => formatProblem(problem));
      throw new Error(`The configuration is not valid:\n${lines.join('\n')}`);
    }
    for (const warning of loaded.warnings) stderr.write(`${formatProblem(warning)}\n`);
    return loaded;
  }

  warningLog(): Log {
    const { stderr } = this.console;
    const write = stderr.draw ?? stderr.write;
    return logWriter({ level: 'warn', pretty: true, clock: systemClock(), write });
  }

  /** Runs `work` with open stores. Holds of a running server stay as they are. */
  async withStores<T>(work: (context: CommandContext) => Promise<T>): Promise<T> {
    const { config } = await this.settings();
    const missing = missingFile(config);
    if (missing !== undefined) {
      throw new Error(
        `There is no database ${missing}: start the server once with "farebox serve", or name its data folder with --data`,
      );
    }
    const parts = { config, clock: systemClock(), ids: systemIds(), log: this.warningLog() };
    const stores = await openStores(parts);
    try {
      return await work({ ...parts, stores });
    } finally {
      await stores.close();
    }
  }

  /** Runs `work` with open stores and the account that `--account` names. */
  withAccount<T>(
    { account: wanted }: { readonly account?: string | undefined },
    work: (context: CommandContext & { readonly account: Account }) => Promise<T>,
  ): Promise<T> {
    return this.withStores(async (context) => {
      const account = await findAccount(context.stores, wanted);
      return await work({ ...context, account });
    });
  }
}

export interface Settings {
  readonly config: Config;
  readonly sources: readonly ConfigSource[];
}

export interface CommandContext {
  readonly config: Config;
  readonly stores: Stores;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** The path of the SQLite database if it does not exist. */
export function missingFile({ databaseUrl: url }: Config): string | undefined {
  if (!url.startsWith('sqlite:')) return undefined;
  const file = url.slice('sqlite:'.length);
  try {
    return statSync(file, { throwIfNoEntry: false }) === undefined ? file : undefined;
  } catch {
    // The folder is closed to this user: opening the file fails with the reason.
    return undefined;
  }
}

/** The commands that can be run, at any depth; a group such as `keys` has no description. */
export function commandsBelow(command: CommandUnknownOpts): CommandUnknownOpts[] {
  return command.commands.flatMap((one) => {
    const below = commandsBelow(one);
    return one.description() === '' ? below : [one, ...below];
  });
}

export function summaryOf(command: CommandUnknownOpts): string {
  return command.description().split('\n', 1)[0] ?? '';
}

/** The words of a command, such as `keys create`. */
export function nameOf(command: CommandUnknownOpts): string {
  const { parent } = command;
  return parent?.parent ? `${parent.name()} ${command.name()}` : command.name();
}

const AMOUNT = /^\d+(?:\.\d{1,9})?$/;

/** Parses an amount in USD: zero or more, with at most 9 decimals. */
export function usd(text: string): Nano {
  if (AMOUNT.test(text)) return usdToNano(text);
  throw new InvalidArgumentError(`must be a decimal amount such as 25 or 0.50, not "${text}"`);
}

/** Makes a parser that accepts the words in any case and returns their spelling in `words`. */
export function oneOf<Word extends string>(words: readonly Word[]): (text: string) => Word {
  return (text) => {
    const found = words.find((word) => word.toLowerCase() === text.toLowerCase());
    if (found !== undefined) return found;
    throw new InvalidArgumentError(`must be one of ${words.join(', ')}, not "${text}"`);
  };
}

export function shortText(maxCharacters: number): (text: string) => string {
  return (text) => {
    if (text.length <= maxCharacters) return text;
    throw new InvalidArgumentError(
      `must have at most ${maxCharacters} characters, not ${text.length}`,
    );
  };
}

/** Parses an http(s) URL and removes the slashes at its end. */
export function httpAddress(text: string): string {
  const url = URL.parse(text);
  if (url !== null && /^https?:$/.test(url.protocol)) return text.replace(/\/+$/, '');
  throw new InvalidArgumentError(`must be a URL such as https://example.com, not "${text}"`);
}

const SPAN = /^(\d{1,6})(m|h|d)$/;
const DATE = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
const SPAN_MS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/** Parses a date, a time with its zone, or a span such as `12h`; `NaN` for any other text. */
function timeMs(text: string, nowMs: number, direction: 1 | -1): number {
  const [, count, unit = ''] = SPAN.exec(text) ?? [];
  const span = SPAN_MS[unit];
  if (span !== undefined) return nowMs + direction * Number(count) * span;
  return DATE.test(text) ? Date.parse(text) : Number.NaN;
}

/** Parses a time in the future; a span counts from now. */
export function futureMs(text: string): number {
  const nowMs = systemClock().nowMs();
  const atMs = timeMs(text, nowMs, 1);
  if (atMs > nowMs) return atMs;
  throw new InvalidArgumentError(
    Number.isNaN(atMs)
      ? `must be a span such as 12h or 30d, or a date such as 2027-01-31 (00:00 UTC), not "${text}"`
      : `must be in the future; "${text}" is ${isoTime(atMs)}`,
  );
}

/** Parses a time in the past; a span counts back from now. */
export function pastMs(text: string): number {
  const nowMs = systemClock().nowMs();
  const atMs = timeMs(text, nowMs, -1);
  if (atMs <= nowMs) return atMs;
  throw new InvalidArgumentError(
    `must be a span such as 12h or 30d, or a date in the past such as 2026-01-31 (00:00 UTC), not "${text}"`,
  );
}

/** Decimal text with at least two decimals: `5.00`, `0.000012`. */
export function shownUsd(amount: bigint): string {
  return formatUsd(amount).replace(/(\.\d\d\d*?)0+$/, '$1');
}

/** `2026-11-21 05:12` in UTC, or a dash. */
export function shownTime(ms: number | undefined): string {
  return ms === undefined ? '-' : isoTime(ms).slice(0, 16).replace('T', ' ');
}

/** Amounts in JSON are decimal text, because a JSON number may be rounded by its reader. */
export function jsonUsd(amount: bigint | undefined): string | null {
  return amount === undefined ? null : shownUsd(amount);
}

const MAX_NAMESAKES = 10;
/** Newest accounts whose names are compared with an unknown one. */
const MAX_GUESSED = 1_000;

/** Like `findAccount`, but creates the account of a wallet that has none. */
export async function openedAccount(stores: Stores, wanted: string | undefined): Promise<Account> {
  const { identity, ledger } = stores;
  const wallet = wanted === undefined ? undefined : walletOfAccount(accountIdOf(wanted));
  if (wallet !== undefined && walletKind(wallet) !== undefined) {
    await ledger.openAccount(await identity.openWalletAccount(wallet));
  }
  return findAccount(stores, wanted);
}

/** Finds an account by id, name or wallet address; `undefined` finds the owner, the oldest account. */
export async function findAccount(
  { identity }: Stores,
  wanted: string | undefined,
): Promise<Account> {
  const owner = await identity.oldestAccount();
  if (owner === undefined) {
    throw new Error('There is no account yet: start the server once with "farebox serve"');
  }
  if (wanted === undefined) return owner;
  const byId = await identity.findAccount(accountIdOf(wanted));
  if (byId !== undefined) return byId;
  const named = await identity.accountsNamed(wanted, MAX_NAMESAKES);
  const [account] = named;
  if (account === undefined) {
    const newest = await identity.searchAccounts({}, { limit: MAX_GUESSED });
    const names = newest.map(({ name }) => name);
    const advice = didYouMean(wanted, names) || '; "farebox accounts list" lists the accounts';
    throw new Error(`There is no account "${wanted}"${advice}`);
  }
  if (named.length === 1) return account;
  const ids = named.map((one) => one.id).join(', ');
  throw new Error(`Several accounts have the name "${wanted}": give one of the ids ${ids}`);
}
