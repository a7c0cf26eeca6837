/**
 * What every command works with: the terminal and how results are printed, the parsers of option
 * values, the configuration, and the database with its accounts and money.
 */
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
import { nearestOf } from '../core/nearest-word.ts';
import { walletKind } from '../core/addresses.ts';
import { type Account, accountIdOf, walletOfAccount } from '../identity/identity.ts';
import { logWriter } from '../observability/log-writer.ts';
import { type Stores, openStores } from '../server/stores.ts';
import type { Columns, Console } from './terminal.ts';

/** Options that several commands share, as commander takes them. */
export const ACCOUNT = ['--account <id or name>', 'whose account (default: the owner)'] as const;
export const FOLLOWS = 'A running server follows within three seconds.';

/** Wrong words on the command line: the help follows, and the exit code is 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** One run of the command line. Each command adds itself to `program` and prints through this. */
export class Cli {
  /** The environment holds what the options `--config` and `--data` say. */
  console: Console;
  exitCode = 0;
  readonly program = new Command('farebox')
    .description('A paid inference API that you own')
    .option('--json', 'print JSON; "serve" writes its log lines as JSON')
    .option('--config <file>', 'the settings (default: FAREBOX_CONFIG, else farebox.yaml)')
    .option(
      '--data <folder>',
      'database, keys, models, media (default: FAREBOX_DATA, else ./data)',
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

  /** The command that holds others, such as `keys`; made with the first of them. */
  group(name: string): CommandUnknownOpts {
    const known = this.program.commands.find((command) => command.name() === name);
    return known ?? this.program.command(name);
  }

  /** Variables that options stand for; those that were not given stay as they are. */
  setEnvironment(given: Readonly<Record<string, string | undefined>>): void {
    const set = Object.entries(given).filter(([, value]) => value !== undefined);
    this.console = { ...this.console, env: { ...this.console.env, ...Object.fromEntries(set) } };
  }

  /** Prints the JSON document with `--json`, the text without. */
  print(json: unknown, text: string): void {
    this.console.stdout.write(this.isJson ? `${JSON.stringify(json, undefined, 2)}\n` : text);
  }

  /**
   * Prints a list of any length page by page: one JSON document, or a table. A table reads the
   * pages twice, for the widths of its columns.
   */
  async printPages<Row>(
    pages: () => AsyncIterable<readonly Row[]>,
    json: (row: Row) => unknown,
    columns: Columns,
    cells: (row: Row) => readonly string[],
  ): Promise<void> {
    const { stdout } = this.console;
    if (this.isJson) {
      let before = '[';
      for await (const page of pages()) {
        for (const row of page) {
          const shown = JSON.stringify(json(row), undefined, 2).replaceAll('\n', '\n  ');
          stdout.write(`${before}\n  ${shown}`);
          before = ',';
        }
      }
      stdout.write(before === '[' ? '[]\n' : '\n]\n');
      return;
    }
    for await (const page of pages()) columns.fit(page.map(cells));
    stdout.write(columns.head());
    for await (const page of pages()) stdout.write(columns.lines(page.map(cells)));
  }

  /** The configuration. Throws an error that names every line that is wrong. */
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

  /** A log of warnings for the person at the terminal. */
  warningLog(): Log {
    const { stderr } = this.console;
    const write = stderr.draw ?? stderr.write;
    return logWriter({ level: 'warn', pretty: true, clock: systemClock(), write });
  }

  /** Opens the stores for one command. Holds of a running server stay as they are. */
  async withStores<T>(work: (context: CommandContext) => Promise<T>): Promise<T> {
    const { config } = await this.settings();
    const parts = { config, clock: systemClock(), ids: systemIds(), log: this.warningLog() };
    const stores = await openStores(parts);
    try {
      return await work({ ...parts, stores });
    } finally {
      await stores.close();
    }
  }

  /** The same with the account that `--account` names. */
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

/** The configuration with the files that it came from, for a server that follows them. */
export interface Settings {
  readonly config: Config;
  readonly sources: readonly ConfigSource[];
}

/** What a command on the database works with; everything is closed when it ends. */
export interface CommandContext {
  readonly config: Config;
  readonly stores: Stores;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

const AMOUNT = /^\d+(?:\.\d{1,9})?$/;

/** Parses an amount of zero or more with at most 9 decimals. */
export function usd(text: string): Nano {
  if (AMOUNT.test(text)) return usdToNano(text);
  throw new InvalidArgumentError(`must be a decimal amount such as 25 or 0.50, not "${text}"`);
}

/** Makes the parser of one of a set of words, in any case; the spelling of the set comes back. */
export function oneOf<Word extends string>(words: readonly Word[]): (text: string) => Word {
  return (text) => {
    const found = words.find((word) => word.toLowerCase() === text.toLowerCase());
    if (found !== undefined) return found;
    throw new InvalidArgumentError(`must be one of ${words.join(', ')}, not "${text}"`);
  };
}

/** Makes the parser of a text of at most `max` characters. */
export function shortText(max: number): (text: string) => string {
  return (text) => {
    if (text.length <= max) return text;
    throw new InvalidArgumentError(`has at most ${max} characters`);
  };
}

/** Parses an http(s) address; the slashes at its end are cut off. */
export function httpAddress(text: string): string {
  const url = URL.parse(text);
  if (url !== null && /^https?:$/.test(url.protocol)) return text.replace(/\/+$/, '');
  throw new InvalidArgumentError(`must be an address such as https://example.com, not "${text}"`);
}

const SPAN = /^(\d{1,6})(m|h|d)$/;
const DATE = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
const SPAN_MS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/**
 * A span such as `12h` or `30d` from `nowMs` on (back with -1), a date, or a time with its zone.
 */
function timeMs(text: string, nowMs: number, direction: 1 | -1): number {
  const [, count, unit = ''] = SPAN.exec(text) ?? [];
  const span = SPAN_MS[unit];
  if (span !== undefined) return nowMs + direction * Number(count) * span;
  return DATE.test(text) ? Date.parse(text) : Number.NaN;
}

/** Parses a date, a time with its zone, or a span from now; always in the future. */
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

/** Parses a date, a time with its zone, or a span back from now. */
export function pastMs(text: string): number {
  const nowMs = systemClock().nowMs();
  const atMs = timeMs(text, nowMs, -1);
  if (atMs <= nowMs) return atMs;
  throw new InvalidArgumentError(
    `must be a span such as 12h or 30d, or a date that has passed such as 2027-01-31 (00:00 UTC), not "${text}"`,
  );
}

/** Decimal text with cents and without further zeros at its end: `5.00`, `0.000012`. */
export function shownUsd(amount: bigint): string {
  return formatUsd(amount).replace(/(\.\d\d\d*?)0+$/, '$1');
}

/** `2026-11-21 05:12` UTC, or a dash. */
export function shownTime(ms: number | undefined): string {
  return ms === undefined ? '-' : isoTime(ms).slice(0, 16).replace('T', ' ');
}

/** An amount for `--json`: decimal text, so that no reader rounds it. */
export function jsonUsd(amount: bigint | undefined): string | null {
  return amount === undefined ? null : shownUsd(amount);
}

/** ` (did you mean "…"?)`, or nothing when no candidate is near. */
export function guessOf(word: string, candidates: Iterable<string>): string {
  const near = nearestOf(word, candidates);
  return near === undefined ? '' : ` (did you mean "${near}"?)`;
}

/** Accounts of one name that an error lists. */
const MAX_NAMESAKES = 10;
/** The newest accounts whose names are compared with an unknown one. */
const MAX_GUESSED = 1_000;

/** The account as `findAccount` finds it; a wallet that has none yet gets one. */
export async function openedAccount(stores: Stores, wanted: string | undefined): Promise<Account> {
  const { identity, ledger } = stores;
  const wallet = wanted === undefined ? undefined : walletOfAccount(accountIdOf(wanted));
  if (wallet !== undefined && walletKind(wallet) !== undefined) {
    await ledger.openAccount(await identity.openWalletAccount(wallet));
  }
  return findAccount(stores, wanted);
}

/** Finds an account by id, name or wallet address; without one, the owner: the oldest account. */
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
    throw new Error(
      `There is no account "${wanted}"${guessOf(wanted, names)}; "farebox accounts list" shows them all`,
    );
  }
  if (named.length === 1) return account;
  const ids = named.map((one) => one.id).join(', ');
  throw new Error(`Several accounts are called "${wanted}": name one by its id (${ids})`);
}
