/**
 * Notifications between the processes of one PostgreSQL, by LISTEN and NOTIFY on a dedicated
 * connection. Delivery is checked, because a pooler in transaction mode accepts LISTEN but delivers
 * nothing, and a network partition gives no error. Notifications without a listener are lost.
 */
import pg from 'pg';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import type { Notices } from '../contract.ts';

const CHANNEL = 'farebox';
/** Time limit for the first notification to this process, which a pooler never delivers. */
const FIRST_ECHO_MS = 2 * SECOND_MS;
/** Interval of delivery checks, and delay of the next one after a failure. */
const CHECK_EVERY_MS = 2 * SECOND_MS;
/** After this many failures a pooler is assumed: one check in `POOLER_CHECK_SHARE` runs. */
const MISSES_OF_POOLER = 5;
const POOLER_CHECK_SHARE = 15;
const ECHO = 'echo ';

export interface NoticesParts {
  /** Opens a connection to the current server; called again after each loss. */
  readonly connect: () => pg.Client;
  readonly send: (message: string) => Promise<unknown>;
  /** Time limit for later notifications: that of any reply of a slow database. */
  readonly patienceMs: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export class PostgresNotices {
  readonly #parts: NoticesParts;
  readonly #listeners: ((message: string) => void)[] = [];
  #started: Promise<void> | undefined;
  #client: pg.Client | undefined;
  /** The last notification sent on it: a connection runs one statement at a time. */
  #sent: Promise<unknown> = Promise.resolve();
  #areDelivered = false;
  #misses = 0;
  #isWarned = false;
  #isClosed = false;
  #checking: Promise<void> | undefined;
  #echo: { readonly message: string; readonly resolve: () => void } | undefined;
  #stop: (() => void) | undefined;

  constructor(parts: NoticesParts) {
    this.#parts = parts;
  }

  /** Resolves after the first delivery check; does not fail. */
  async listen(received: (message: string) => void): Promise<Notices> {
    this.#listeners.push(received);
    this.#started ??= this.#start();
    await this.#started;
    const areDelivered = (): boolean => this.#areDelivered;
    return {
      get areDelivered() {
        return areDelivered();
      },
      notify: (message) => this.#notify(message),
      close: () => void this.#listeners.splice(this.#listeners.indexOf(received), 1),
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

  async #notify(message: string): Promise<void> {
    const client = this.#client;
    // Uses a separate connection: the caller may be in a transaction with the last one of the pool.
    if (client === undefined) await this.#parts.send(message);
    else {
      const sent = this.#sent.then(() => client.query(NOTIFY, [message]));
      this.#sent = sent.catch(() => undefined); // reported to the sender
      await sent;
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
    const { log, clock, ids, send, patienceMs } = this.#parts;
    try {
      if (this.#client === undefined) await this.#listen();
      const message = ECHO + ids.uuid();
      const { promise, resolve } = Promise.withResolvers<boolean>();
      this.#echo = { message, resolve: () => resolve(true) };
      const cancel = clock.after(this.#areDelivered ? patienceMs : FIRST_ECHO_MS, () =>
        resolve(false),
      );
      // Over another connection: a pooler delivers notifications to their own connection.
      await send(message);
      const isBack = await promise;
      cancel();
      this.#echo = undefined;
      this.#misses = isBack ? 0 : this.#misses + 1;
      if (!isBack) throw new Error('A notification to this process was not delivered');
      if (!this.#areDelivered && this.#isWarned)
        log.info({}, 'Notifications of the database are delivered again');
      this.#areDelivered = true;
      this.#isWarned = false;
    } catch (error) {
      // Checked again shortly; until then delivery counts as broken.
      this.#echo = undefined;
      this.#drop();
      if (!this.#isWarned && !this.#isClosed) {
        log.warn(
          { reason: reasonOf(error) },
          'Notifications of the database are not delivered, so every request reserves its money in the database; with a pooler in transaction mode, set cluster.directDatabase',
        );
      }
      this.#isWarned = true;
    }
  }

  async #listen(): Promise<void> {
    const client = this.#parts.connect();
    client.on('error', () => this.#lost(client));
    client.on('end', () => this.#lost(client));
    client.on('notification', ({ payload }) => this.#receive(payload ?? ''));
    try {
      await client.connect();
      await client.query(`LISTEN ${CHANNEL}`);
    } catch (error) {
      client.end().catch(() => undefined); // it never was connected
      throw error;
    }
    this.#client = client;
  }

  #receive(message: string): void {
    if (message === this.#echo?.message) this.#echo.resolve();
    if (!message.startsWith(ECHO)) for (const received of this.#listeners) received(message);
  }

  #lost(client: pg.Client): void {
    if (client === this.#client) this.#drop();
  }

  #drop(): void {
    const client = this.#client;
    this.#client = undefined;
    this.#areDelivered = false;
    client?.end().catch(() => undefined); // the server notices by itself
  }
}

export const NOTIFY = `SELECT pg_notify('${CHANNEL}', $1)`;
