/** A connection of a client of the simulated PostgreSQL, with its backend. */
import type net from 'node:net';
import type { Backend } from './postgres-backend.ts';
import {
  type Message,
  errorOf,
  messageOf,
  messagesOf,
  numberIn,
  textsOf,
  withoutNumbers,
} from './postgres-messages.ts';
import { type Machine, type Timer, world } from './world.ts';

const TIME = /(?:statement|clock)_timestamp\(\)/;
const TIMES = new RegExp(TIME, 'g');
const WORLD_TIME = `to_timestamp(current_setting('world.now')::float8)`;
const LIMIT = /SET LOCAL (statement_timeout|idle_in_transaction_session_timeout) = (\d+)/g;

/** Time limits in milliseconds; 0 for none. */
interface Limits {
  readonly statement_timeout: number;
  readonly idle_in_transaction_session_timeout: number;
}

/** The part of `SimulatedPostgres` that sessions use. */
interface Database {
  readonly losesOnce: number;
  readonly losesOnlyCharges: boolean;
  connect(startup: Buffer, place: number, received: (message?: Message) => void): Backend;
  touch(): void;
  notified(): void;
}

export class Session {
  readonly place: number;
  readonly #client: net.Socket;
  readonly #machine: Machine;
  readonly #database: Database;
  backend: Backend | undefined;
  #isLeaving = false;
  #isVictim = false;
  /** The next turn of the backend begins with these. */
  #startup: Buffer | undefined;
  #outbox: Buffer[] = [];
  #signal: 'SIGINT' | 'SIGTERM' | undefined;
  isListening = false;
  /** For each ReadyForQuery that follows: whether the driver itself waits for it. */
  #awaited: boolean[] = [];
  /** Messages since the last Sync. */
  #group: Buffer[] = [];
  #needsTime = false;
  #notifies = false;
  /** Texts of prepared statements, by name. */
  readonly #prepared = new Map<string, string>();
  #reply: Buffer[] = [];
  #ready: Buffer[] = [];
  #status = 'I';
  #hasCommitted = false;
  #hasCharged = false;
  #limits: Limits = { statement_timeout: 0, idle_in_transaction_session_timeout: 0 };
  #localLimits: Limits | undefined;
  #timer: Timer | undefined;

  constructor(client: net.Socket, machine: Machine, place: number, database: Database) {
    this.#client = client;
    this.#machine = machine;
    this.place = place;
    this.#database = database;
    client.on('error', () => undefined); // it closes
    client.on(
      'data',
      messagesOf(false, (message) => this.#receive(message)),
    );
    client.on('end', () => client.end());
    client.on('close', () => this.#leave());
  }

  get isBusy(): boolean {
    if (this.backend === undefined || this.backend.isClosed) return false;
    return this.#awaited.length > 0 || this.#isLeaving;
  }

  /** Whether its backend has something to run: a message, a signal, or a lock that it waited for. */
  get isDue(): boolean {
    if (this.isOver) return false;
    if (this.#startup !== undefined || this.#signal !== undefined) return true;
    return this.backend?.isSuspended === true ? this.backend.isWoken : this.#outbox.length > 0;
  }

  get isOver(): boolean {
    if (this.#startup !== undefined) return false;
    return this.backend === undefined ? this.#isLeaving : this.backend.isClosed;
  }

  /** Lets the backend run. */
  go(): Backend | undefined {
    if (this.#startup !== undefined) {
      this.backend = this.#database.connect(this.#startup, this.place, (one) => this.#replied(one));
      this.#startup = undefined;
    }
    const { backend } = this;
    if (this.#outbox.length > 0) backend?.send(Buffer.concat(this.#outbox.splice(0)));
    if (this.#signal !== undefined) backend?.kill(this.#signal);
    this.#signal = undefined;
    backend?.resume();
    return backend;
  }

  /** Ends the backend after the run, whatever it does. */
  kill(): void {
    this.backend?.kill('SIGTERM');
    this.backend?.resume();
  }

  /** Lets the statement fail, as one in which PostgreSQL notices a deadlock. */
  breakDeadlock(): void {
    this.#isVictim = true;
    this.#signal = 'SIGINT';
  }

  /** Ends the backend; no message of a dead machine arrives. */
  vanish(): void {
    this.#isLeaving = true;
    this.#timer?.cancel();
    this.#startup = undefined;
    this.#outbox = [];
    this.#interrupt('SIGTERM');
    this.#client.destroy();
  }

  /** A backend first runs what has arrived, and then notices that its client has left. */
  #leave(): void {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    this.#timer?.cancel();
    this.#send(messageOf('X'));
  }

  #receive(message: Message): void {
    if (this.#isLeaving) return;
    if (message.type === '') {
      const limit = (name: keyof Limits): number => numberIn(message.body, name);
      this.#limits = {
        statement_timeout: limit('statement_timeout'),
        idle_in_transaction_session_timeout: limit('idle_in_transaction_session_timeout'),
      };
      this.#await(false);
      this.#startup = message.body;
      return this.#database.touch();
    }
    if (message.type === 'X') return this.#leave();
    this.#group.push(this.#rewritten(message));
    if (message.type !== 'S' && message.type !== 'Q') return;
    if (this.#needsTime) this.own(`SET world.now = '${world().nowMs / 1_000}'`);
    this.#needsTime = false;
    this.#await(false);
    this.#send(...this.#group.splice(0));
  }

  #send(...messages: Buffer[]): void {
    this.#database.touch();
    this.#outbox.push(...messages);
  }

  /** Sends a query of the driver. */
  own(query: string): void {
    this.#await(true);
    this.#send(messageOf('Q', query, '\0'));
  }

  #await(isOwn: boolean): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#awaited.push(isOwn);
  }

  #rewritten({ type, body, whole }: Message): Buffer {
    const [first = '', second = ''] = textsOf(body);
    if (type === 'B') this.#willRun(this.#prepared.get(second) ?? '');
    if (type === 'Q') {
      this.#willRun(first);
      return messageOf('Q', this.#withoutLimits(first).replaceAll(TIMES, WORLD_TIME), '\0');
    }
    if (type !== 'P') return whole;
    this.#prepared.set(first, second);
    const rest = body.subarray(Buffer.byteLength(first) + Buffer.byteLength(second) + 2);
    return messageOf('P', first, '\0', second.replaceAll(TIMES, WORLD_TIME), '\0', rest);
  }

  /** A statement of the group. */
  #willRun(text: string): void {
    if (text.startsWith('LISTEN')) this.isListening = true;
    this.#needsTime ||= TIME.test(text);
    this.#notifies ||= text.includes('pg_notify');
    this.#hasCharged ||= text.includes('INTO ledger_usage (');
  }

  /** Time limits are those of the world. */
  #withoutLimits(text: string): string {
    return text.replaceAll(LIMIT, (_match, setting: string, ms: string) => {
      this.#localLimits = { ...this.#limits, ...this.#localLimits, [setting]: Number(ms) };
      return 'SET LOCAL world.unused = 0';
    });
  }

  #replied(message: Message | undefined): void {
    if (message === undefined) {
      this.#ready.push(...this.#reply.splice(0));
      return;
    }
    const { type, body } = message;
    const isOwn = this.#awaited[0] === true;
    if (type === 'A') return void this.#ready.push(withoutNumbers(message));
    if (type === 'E' && this.#isVictim) {
      this.#isVictim = false;
      this.#reply.push(errorOf('ERROR', '40P01', 'deadlock detected'));
    } else if (!isOwn) this.#reply.push(withoutNumbers(message));
    if (type === 'C' && !isOwn && body.toString('latin1') === 'COMMIT\0') this.#hasCommitted = true;
    if (type !== 'Z') return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#status = body.toString('latin1');
    this.#awaited.shift();
    if (!isOwn) this.#ready.push(Buffer.concat(this.#reply.splice(0)));
    if (this.#status !== 'I') return;
    this.#localLimits = undefined;
    if (this.#notifies && !isOwn) {
      this.#notifies = false;
      this.#database.notified();
    }
  }

  /** Sends replies to the client, and starts the time limit of the state in which it is now. */
  deliver(): void {
    const ready = this.#ready.splice(0);
    const { losesOnce, losesOnlyCharges } = this.#database;
    const mayLose = this.#hasCommitted && losesOnce > 0 && (this.#hasCharged || !losesOnlyCharges);
    if (mayLose && world().random.once(losesOnce)) {
      world().note(`${this.#machine.name} loses a commit reply`);
      this.#client.resetAndDestroy();
      return this.#leave();
    }
    if (this.#hasCommitted) this.#hasCharged = false;
    this.#hasCommitted = false;
    this.#machine.run(() => {
      for (const bytes of ready) if (this.#client.writable) this.#client.write(bytes);
      if (this.backend?.isClosed === true) this.#client.end();
    });
    if (this.#timer !== undefined || this.#isLeaving || this.backend === undefined) return;
    const limits = this.#localLimits ?? this.#limits;
    if (this.backend.isSuspended)
      this.#limit(limits.statement_timeout, () => this.#interrupt('SIGINT'));
    else if (!this.isBusy && this.#status !== 'I')
      this.#limit(limits.idle_in_transaction_session_timeout, () => this.#expire());
  }

  #limit(ms: number, end: () => void): void {
    if (ms === 0) return;
    const run = (): void => {
      this.#timer = undefined;
      end();
    };
    this.#timer = world().schedule(ms, run, this.#machine);
  }

  #interrupt(signal: 'SIGINT' | 'SIGTERM'): void {
    this.#signal = signal;
    this.#database.touch();
  }

  #expire(): void {
    const reason = 'terminating connection due to idle-in-transaction timeout';
    this.#client.end(errorOf('FATAL', '25P03', reason));
    this.#leave();
  }
}
