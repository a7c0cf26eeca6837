/**
 * Words between the processes of one PostgreSQL, by LISTEN and NOTIFY on a connection of its own.
 * Whether they arrive is tried, not assumed: a pooler in transaction mode takes a LISTEN and lets
 * nothing through, and a cut network says nothing at all. What is said while nobody listens is lost.
 */
import pg from 'pg';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import type { Notices } from '../contract.ts';

const CHANNEL = 'farebox';
/** How long the first word to ourselves may take: a pooler lets none through. */
const FIRST_ECHO_MS = 2 * SECOND_MS;
/** How often the way is tried, and how soon after it was found broken. */
const CHECK_EVERY_MS = 2 * SECOND_MS;
/** A way that let nothing through so often is a pooler's: it is tried once in so many times then. */
const MISSES_OF_POOLER = 5;
const POOLER_CHECK_SHARE = 15;
const ECHO = 'echo ';

export interface NoticesParts {
  /** A connection to the server in use now; made anew after each loss. */
  readonly connect: () => pg.Client;
  /** Says a word over the pool, as every other process would. */
  readonly say: (word: string) => Promise<unknown>;
  /** How long the others may take: as long as any reply of a database that has become slow. */
  readonly patienceMs: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

/** One for all who listen in a process. */
export class PostgresNotices {
  readonly #parts: NoticesParts;
  readonly #listeners: ((word: string) => void)[] = [];
  #started: Promise<void> | undefined;
  #client: pg.Client | undefined;
  /** The last word said on it: a connection takes one statement at a time. */
  #said: Promise<unknown> = Promise.resolve();
  #isHeard = false;
  #misses = 0;
  #isWarned = false;
  #isClosed = false;
  #checking: Promise<void> | undefined;
  #echo: { readonly word: string; readonly resolve: () => void } | undefined;
  #stop: (() => void) | undefined;

  constructor(parts: NoticesParts) {
    this.#parts = parts;
  }

  /** Resolves when the way was tried once; does not fail. */
  async listen(heard: (word: string) => void): Promise<Notices> {
    this.#listeners.push(heard);
    this.#started ??= this.#start();
    await this.#started;
    const arrive = (): boolean => this.#isHeard;
    return {
      get arrive() {
        return arrive();
      },
      say: (word) => this.#say(word),
      close: () => void this.#listeners.splice(this.#listeners.indexOf(heard), 1),
    };
  }

  async #start(): Promise<void> {
    await this.#check();
    let turns = 0;
    this.#stop = this.#parts.clock.every(CHECK_EVERY_MS, () => {
      turns += 1;
      if (this.#misses >= MISSES_OF_POOLER && turns % POOLER_CHECK_SHARE !== 0) return;
      this.#checking ??= this.#check().finally(() => {
        this.#checking = undefined;
      });
    });
  }

  async #say(word: string): Promise<void> {
    const client = this.#client;
    // Its own connection: the caller may be inside a transaction that has the last one of the pool.
    if (client === undefined) await this.#parts.say(word);
    else {
      const said = this.#said.then(() => client.query('SELECT pg_notify($1, $2)', [CHANNEL, word]));
      this.#said = said.catch(() => undefined); // who says it hears of it
      await said;
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stop?.();
    await this.#checking;
    this.#drop();
  }

  async #check(): Promise<void> {
    if (this.#isClosed) return;
    const { log, clock, ids, say, patienceMs } = this.#parts;
    try {
      if (this.#client === undefined) await this.#listen();
      const word = ECHO + ids.uuid();
      const { promise, resolve } = Promise.withResolvers<boolean>();
      this.#echo = { word, resolve: () => resolve(true) };
      const cancel = clock.after(this.#isHeard ? patienceMs : FIRST_ECHO_MS, () => resolve(false));
      // By another connection: a pooler hands an own word back on the spot.
      await say(word);
      const isBack = await promise;
      cancel();
      this.#echo = undefined;
      this.#misses = isBack ? 0 : this.#misses + 1;
      if (!isBack) throw new Error('A notification to ourselves did not arrive');
      if (!this.#isHeard && this.#isWarned) log.info({}, 'Notifications of the database arrive');
      this.#isHeard = true;
      this.#isWarned = false;
    } catch (error) {
      // Tried again in a moment; until then nobody relies on it.
      this.#echo = undefined;
      this.#drop();
      if (!this.#isWarned && !this.#isClosed) {
        log.warn(
          { reason: reasonOf(error) },
          'Notifications of the database do not arrive: every request asks the database for its money; past a pooler in transaction mode set cluster.directDatabase',
        );
      }
      this.#isWarned = true;
    }
  }

  async #listen(): Promise<void> {
    const client = this.#parts.connect();
    client.on('error', () => this.#lost(client));
    client.on('end', () => this.#lost(client));
    client.on('notification', ({ payload }) => this.#heard(payload ?? ''));
    try {
      await client.connect();
      await client.query(`LISTEN ${CHANNEL}`);
    } catch (error) {
      client.end().catch(() => undefined); // it never was connected
      throw error;
    }
    this.#client = client;
  }

  #heard(word: string): void {
    if (word === this.#echo?.word) this.#echo.resolve();
    if (!word.startsWith(ECHO)) for (const heard of this.#listeners) heard(word);
  }

  #lost(client: pg.Client): void {
    if (client === this.#client) this.#drop();
  }

  #drop(): void {
    const client = this.#client;
    this.#client = undefined;
    this.#isHeard = false;
    client?.end().catch(() => undefined); // the server notices by itself
  }
}

/** For a transaction: said when it commits. */
export const SAY = `SELECT pg_notify('${CHANNEL}', $1)`;
