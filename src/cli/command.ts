/**
 * What a command is and what it works with: its name and help, the words that people type, the
 * configuration, and the database, accounts and money.
 */
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

export interface Command {
  readonly name: string;
  /** One line for the overview. */
  readonly summary: string;
  /** Whether words other than options may follow; the others refuse them. */
  readonly takesWords?: true;
  /** After `farebox `. */
  readonly usage: string;
  /** Examples, and each option in a line that begins with it: these lines say what is taken. */
  readonly details: string;
  /** Gives the exit code; without one it is 0. */
  run(invocation: Invocation): Promise<number | void>;
}

/** Wrong words on the command line: answered with the help and exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

const AMOUNT = /^\d+(?:\.\d{1,9})?$/;

/** One call of a command: its words, and where it says what. */
export class Invocation {
  readonly console: Console;
  readonly positionals: readonly string[];
  readonly #values: Readonly<Record<string, unknown>>;

  constructor(
    console: Console,
    positionals: readonly string[],
    values: Readonly<Record<string, unknown>>,
  ) {
    this.console = console;
    this.positionals = positionals;
    this.#values = values;
  }

  get isJson(): boolean {
    return this.given('json');
  }

  /** With `--json` one document, indented for people who read it; else what `text` makes. */
  answer(json: () => unknown, text: () => string): void {
    const shown = this.isJson ? `${JSON.stringify(json(), undefined, 2)}\n` : text();
    this.console.stdout.write(shown);
  }

  /**
   * The same of a list of any length, page by page: with `--json` one document, else a table. A table
   * reads the pages twice, for the widths of its columns.
   */
  async answerPages<Row>(
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

  given(name: string): boolean {
    return this.#values[name] === true;
  }

  /** The text of an option, or `undefined` when it was not given. */
  text(name: string): string | undefined {
    const value = this.#values[name];
    return typeof value === 'string' ? value : undefined;
  }

  amount(name: string): Nano | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : amountNano(text, `--${name}`);
  }

  /** One of a set of words, in any case; the set's spelling comes back. */
  word<Word extends string>(name: string, words: readonly Word[]): Word | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const found = words.find((word) => word.toLowerCase() === text.toLowerCase());
    if (found !== undefined) return found;
    throw new UsageError(`--${name} must be one of ${words.join(', ')}, not "${text}"`);
  }

  /** `a, b` -> `['a', 'b']`; at least one item. */
  list(name: string): readonly string[] | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const items = text.split(',').map((item) => item.trim());
    if (items.every((item) => item !== '')) return [...new Set(items)];
    throw new UsageError(`--${name} must be names with commas between them, such as a,b`);
  }

  /** The one word beside the options. */
  only(problem: string): string {
    const [word = '', ...rest] = this.positionals;
    if (word !== '' && rest.length === 0) return word;
    throw new UsageError(problem);
  }
}

/** An amount of zero or more with at most 9 decimals. */
export function amountNano(text: string, what: string): Nano {
  if (AMOUNT.test(text)) return usdToNano(text);
  throw new UsageError(`${what} must be a decimal amount such as 25 or 0.50, not "${text}"`);
}

const SPAN = /^(\d{1,6})(m|h|d)$/;
const DATE = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:\d{2}))?$/;
const SPAN_MS: Readonly<Record<string, number>> = { m: MINUTE_MS, h: HOUR_MS, d: DAY_MS };

/** A span such as `12h` or `30d` from `nowMs` on (back with -1), a date, or a time with its zone. */
function timeMs(text: string, nowMs: number, direction: 1 | -1): number {
  const [, count, unit = ''] = SPAN.exec(text) ?? [];
  const span = SPAN_MS[unit];
  if (span !== undefined) return nowMs + direction * Number(count) * span;
  return DATE.test(text) ? Date.parse(text) : Number.NaN;
}

/** A date, a time with its zone, or a span from now; always in the future. */
export function futureMs(text: string, nowMs: number): number {
  const atMs = timeMs(text, nowMs, 1);
  if (atMs > nowMs) return atMs;
  throw new UsageError(
    Number.isNaN(atMs)
      ? `--expires must be a span such as 12h or 30d, or a date such as 2027-01-31 (00:00 UTC), not "${text}"`
      : `--expires must be in the future; "${text}" is ${isoTime(atMs)}`,
  );
}

/** A date, a time with its zone, or a span back from now. */
export function pastMs(text: string, nowMs: number): number {
  const atMs = timeMs(text, nowMs, -1);
  if (atMs <= nowMs) return atMs;
  throw new UsageError(
    `--since must be a span such as 12h or 30d, or a date that has passed such as 2027-01-31 (00:00 UTC), not "${text}"`,
  );
}

/** Decimal text without the zeros that say nothing, but with cents: `5.00`, `0.000012`. */
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

/** The configuration with the files that it came from, for a server that follows them. */
export interface Settings {
  readonly config: Config;
  readonly sources: readonly ConfigSource[];
}

/** The configuration, or an error that names every line that is wrong. */
export async function requireSettings(console: Console): Promise<Settings> {
  const loaded = await loadConfig({ env: console.env, cwd: console.cwd });
  if (!loaded.ok) {
    const lines = loaded.problems.map((problem) => formatProblem(problem));
    throw new Error(`The configuration is not valid:\n${lines.join('\n')}`);
  }
  for (const warning of loaded.warnings) console.stderr.write(`${formatProblem(warning)}\n`);
  return loaded;
}

/** What a command on the database works with; everything is closed when it ends. */
export interface CommandContext {
  readonly config: Config;
  readonly stores: Stores;
  readonly clock: Clock;
  readonly ids: Ids;
  /** What goes wrong, for the person at the terminal. */
  readonly log: Log;
}

export function warningLog({ stderr }: Console): Log {
  return logWriter({
    level: 'warn',
    pretty: true,
    clock: systemClock(),
    write: stderr.draw ?? stderr.write,
  });
}

/**
 * Opens the stores for one command beside a server or without one, and closes them, however the
 * command ends. It starts no epoch and closes none: holds of a running server stay as they are.
 */
export async function withStores<T>(
  { console }: Invocation,
  work: (context: CommandContext) => Promise<T>,
): Promise<T> {
  const { config } = await requireSettings(console);
  const parts = { config, clock: systemClock(), ids: systemIds(), log: warningLog(console) };
  const stores = await openStores(parts);
  try {
    return await work({ ...parts, stores });
  } finally {
    await stores.close();
  }
}

/** Accounts of one name that a refusal tells. */
const MAX_NAMESAKES = 10;
/** The newest accounts whose names are compared with one that nobody has. */
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

/** The account with this id, name or wallet address; `undefined` means the owner, the oldest account. */
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
