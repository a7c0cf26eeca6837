/**
 * A real PostgreSQL, driven one message at a time. The server listens on the network of the world as a
 * primary and a standby, and passes each group of messages on to a real backend. The world continues
 * when every backend is idle or waits for a lock of another one, so that transactions of several
 * processes interleave by the delays of the network alone. All times are those of the world: the clock
 * of the database, `statement_timeout`, and the time limit of an idle transaction.
 *
 * Backends share one database, so a failover loses no commit, as with a synchronous standby.
 */
import { execFile } from 'node:child_process';
import net from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { type TestPostgres, startPostgres } from '../databases/postgres.ts';
import {
  Backend,
  type Message,
  Messages,
  fatal,
  messageOf,
  startupOf,
  textsOf,
  withoutNumbers,
} from './postgres-messages.ts';
import { type Machine, type Timer, world } from './world.ts';

/** Captured before the edges replace it. */
const realTimeout = setTimeout;
const realImmediate = setImmediate;

/** Real time without a reply after which the driver reads the locks; longer than `deadlock_timeout`. */
const LOOK_AFTER_MS = 4;
const DATABASE_PORTS = [5_001, 5_002];
const TIME = /(?:statement|clock)_timestamp\(\)/g;
const WORLD_TIME = `to_timestamp(current_setting('world.now')::float8)`;
const LIMIT = /SET LOCAL (statement_timeout|idle_in_transaction_session_timeout) = (\d+)/g;
const MIGRATE = fileURLToPath(new URL('migrate-database.ts', import.meta.url));
const TEMPLATE = 'migrated';

/** A ReadyForQuery that the client, or the driver itself, waits for. */
interface Awaited {
  readonly isOwn: boolean;
}

interface Limits {
  statementMs: number;
  idleMs: number;
}

export class SimulatedPostgres {
  readonly #server: TestPostgres;
  readonly #control: Backend;
  readonly sessions = new Set<Session>();
  machines: Machine[] = [];
  /** One reply to a commit in so many is lost, with its connection; 0 for none. */
  losesOnce = 0;
  #primary = 0;
  #database = TEMPLATE;
  #runs = 0;
  #blocked = new Set<Session>();
  #isTouched = false;
  #isNotified = false;
  #commands: Promise<unknown>[] = [];
  #progressed: (() => void) | undefined;

  private constructor(server: TestPostgres) {
    this.#server = server;
    this.#control = new Backend(server.socketPath, { database: 'postgres' }, () => undefined);
  }

  /** Call it before the edges are replaced. */
  static async start(): Promise<SimulatedPostgres> {
    const server = await startPostgres();
    const database = new SimulatedPostgres(server);
    await database.#control.query(`CREATE DATABASE ${TEMPLATE}`);
    await promisify(execFile)(process.execPath, [MIGRATE, server.url(TEMPLATE)]);
    return database;
  }

  async close(): Promise<void> {
    await this.#server.close();
  }

  get url(): string {
    const hosts = DATABASE_PORTS.map((port) => `127.0.0.1:${port}`).join(',');
    return `postgres://postgres:unused@${hosts}/farebox`;
  }

  get isRunning(): boolean {
    return this.machines[this.#primary]?.isAlive === true;
  }

  /** A new database for the next run, with a primary and a standby in its world. */
  async enter(): Promise<void> {
    this.sessions.clear();
    this.#commands = [];
    this.#runs += 1;
    const database = `run_${this.#runs}`;
    await this.#control.query(
      `CREATE DATABASE ${database} TEMPLATE ${TEMPLATE} STRATEGY FILE_COPY`,
    );
    if (this.#database !== TEMPLATE) {
      await this.#control.query(`DROP DATABASE ${this.#database} WITH (FORCE)`);
    }
    this.#database = database;
    this.#primary = 0;
    this.#blocked.clear();
    world().outsideWork = () => this.#quiet();
    this.machines = DATABASE_PORTS.map((_, at) => this.#boot(at));
  }

  /** The primary loses power, and the standby is promoted `afterMs` later. */
  async failOver(afterMs: number): Promise<void> {
    const failed = this.#primary;
    world().note(`${this.machines[failed]!.name} crashes`);
    world().kill(this.machines[failed]!);
    await world().sleep(afterMs);
    this.#primary = 1 - failed;
    // Sessions of a standby are read-only to their end.
    for (const session of this.sessions) if (session.place === this.#primary) session.vanish();
    world().note(`${this.machines[this.#primary]!.name} is the primary`);
    await world().sleep(afterMs);
    this.machines[failed] = this.#boot(failed);
  }

  #boot(place: number): Machine {
    const machine = world().machine(`database ${place + 1}`);
    world().on(machine, () => {
      const server = net.createServer((client) => {
        const session = new Session(client, machine, place, this);
        this.sessions.add(session);
        machine.onDeath.add(() => session.vanish());
      });
      server.listen({ port: DATABASE_PORTS[place]! });
    });
    return machine;
  }

  connect(startup: Buffer, place: number, received: (message?: Message) => void): Backend {
    const settings = {
      ...startupOf(startup),
      database: this.#database,
      deadlock_timeout: '1',
      default_transaction_read_only: place === this.#primary ? 'off' : 'on',
      'world.now': '0',
    };
    return new Backend(this.#server.socketPath, settings, (message) => {
      received(message);
      if (message === undefined || message.type === 'Z') this.#progressed?.();
    });
  }

  touch(): void {
    this.#isTouched = true;
  }

  notified(): void {
    this.#isNotified = true;
  }

  /** Runs a command on a backend from outside. */
  signal(command: 'cancel' | 'terminate', { pid }: Backend): void {
    this.touch();
    this.#commands.push(this.#control.query(`SELECT pg_${command}_backend(${pid})`));
  }

  /** Lets backends run until each is idle or waits for a lock. Returns whether one has replied. */
  async #quiet(): Promise<boolean> {
    if (!this.#isTouched) return false;
    this.#isTouched = false;
    await Promise.all(this.#commands.splice(0));
    do await this.#untilNoneRuns();
    while (this.#fetchNotifications());
    for (const session of this.sessions) {
      session.deliver(this.#blocked.has(session));
      if (session.isOver) this.sessions.delete(session);
    }
    return true;
  }

  async #untilNoneRuns(): Promise<void> {
    for (;;) {
      const busy = this.#busy();
      if (busy.length === 0) return this.#blocked.clear();
      const isNew = busy.some((session) => !this.#blocked.has(session));
      if (isNew && (await this.#progress())) continue;
      const rows = await this.#control.query('SELECT pid FROM pg_locks WHERE NOT granted');
      // Replies that arrived before this one.
      await new Promise((resolve) => void realImmediate(resolve));
      const waiting = new Set(rows.map(([pid]) => Number(pid)));
      const rest = this.#busy();
      const blocked = rest.filter(({ pid, isEnding }) => waiting.has(pid) && !isEnding);
      const isSettled = rest.every((session) => this.#blocked.has(session));
      this.#blocked = new Set(blocked);
      if (blocked.length < rest.length) continue;
      if (isSettled) return;
      // PostgreSQL looks for a deadlock once, a moment after a backend began to wait.
      await this.#progress();
    }
  }

  #busy(): Session[] {
    return [...this.sessions].filter((session) => session.isBusy);
  }

  /** Whether a backend has replied before the time limit. */
  #progress(): Promise<boolean> {
    return new Promise((resolve) => {
      const end = (has: boolean): void => {
        clearTimeout(timer);
        this.#progressed = undefined;
        resolve(has);
      };
      const timer = realTimeout(() => end(false), LOOK_AFTER_MS);
      this.#progressed = () => end(true);
    });
  }

  /** An idle backend sends its notifications before the reply to an empty query. */
  #fetchNotifications(): boolean {
    if (!this.#isNotified) return false;
    this.#isNotified = false;
    const listening = [...this.sessions].filter((one) => one.isListening && !one.isBusy);
    for (const session of listening) session.own('');
    return listening.length > 0;
  }
}

/** A connection of a client, with its backend. */
class Session {
  readonly place: number;
  readonly #client: net.Socket;
  readonly #machine: Machine;
  readonly #database: SimulatedPostgres;
  readonly #messages = new Messages();
  #backend: Backend | undefined;
  #isLeaving = false;
  /** True after a signal, which ends its statement or itself although it may seem to wait. */
  isEnding = false;
  isListening = false;
  #awaited: Awaited[] = [];
  /** Messages since the last Sync. */
  #group: Buffer[] = [];
  #needsTime = false;
  #notifies = false;
  /** Names of prepared statements. */
  readonly #timed = new Set<string>();
  readonly #notifying = new Set<string>();
  #reply: Buffer[] = [];
  #ready: Buffer[] = [];
  #status = 'I';
  #hasCommitted = false;
  #limits: Limits = { statementMs: 0, idleMs: 0 };
  #localLimits: Limits | undefined;
  #timer: Timer | undefined;

  constructor(client: net.Socket, machine: Machine, place: number, database: SimulatedPostgres) {
    this.#client = client;
    this.#machine = machine;
    this.place = place;
    this.#database = database;
    client.on('error', () => undefined); // it closes
    client.on('data', (bytes: Buffer) => {
      for (const message of this.#messages.of(bytes)) this.#receive(message);
    });
    client.on('end', () => client.end());
    client.on('close', () => this.#leave());
  }

  get pid(): number {
    return this.#backend?.pid ?? 0;
  }

  get isBusy(): boolean {
    if (this.#backend === undefined || this.#backend.isClosed) return false;
    return this.#awaited.length > 0 || this.#isLeaving;
  }

  get isOver(): boolean {
    return this.#backend === undefined ? this.#isLeaving : this.#backend.isClosed;
  }

  /** Ends the backend; no message of a dead machine arrives. */
  vanish(): void {
    this.#isLeaving = true;
    this.#timer?.cancel();
    this.#signal('terminate');
    this.#client.destroy();
  }

  /** A backend first runs what has arrived, and then notices that its client has left. */
  #leave(): void {
    if (this.#isLeaving) return;
    this.#isLeaving = true;
    this.#timer?.cancel();
    this.#database.touch();
    this.#backend?.send(messageOf('X'));
  }

  #receive(message: Message): void {
    if (this.#isLeaving) return;
    if (message.type === '') {
      const settings = startupOf(message.body);
      this.#limits = {
        statementMs: Number(settings['statement_timeout'] ?? 0),
        idleMs: Number(settings['idle_in_transaction_session_timeout'] ?? 0),
      };
      this.#await(false);
      this.#backend = this.#database.connect(message.body, this.place, (one) => this.#replied(one));
      return;
    }
    if (message.type === 'X') return this.#leave();
    this.#group.push(this.#rewritten(message));
    if (message.type !== 'S' && message.type !== 'Q') return;
    if (this.#needsTime) this.own(`SET world.now = '${world().nowMs / 1_000}'`);
    this.#needsTime = false;
    this.#await(false);
    this.#backend?.send(Buffer.concat(this.#group.splice(0)));
  }

  /** Sends a query of the driver. */
  own(query: string): void {
    this.#await(true);
    this.#backend?.send(messageOf('Q', query, '\0'));
  }

  #await(isOwn: boolean): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#database.touch();
    this.#awaited.push({ isOwn });
  }

  #rewritten({ type, body, whole }: Message): Buffer {
    if (type === 'B') {
      const [, name = ''] = textsOf(body);
      if (this.#timed.has(name)) this.#needsTime = true;
      if (this.#notifying.has(name)) this.#notifies = true;
    }
    if (type !== 'P' && type !== 'Q') return whole;
    const [first = '', second = ''] = textsOf(body);
    const [name, text] = type === 'Q' ? [undefined, first] : [first, second];
    if (text.startsWith('LISTEN')) this.isListening = true;
    const isTimed = TIME.test(text);
    const notifies = text.includes('pg_notify');
    if (name === undefined) {
      this.#needsTime ||= isTimed;
      this.#notifies ||= notifies;
      return messageOf('Q', this.#withoutLimits(text).replaceAll(TIME, WORLD_TIME), '\0');
    }
    // A name can be used again for another text, and the unnamed one is.
    mark(this.#timed, name, isTimed);
    mark(this.#notifying, name, notifies);
    const rest = body.subarray(Buffer.byteLength(name) + Buffer.byteLength(text) + 2);
    return messageOf('P', name, '\0', text.replaceAll(TIME, WORLD_TIME), '\0', rest);
  }

  /** Time limits are those of the world. */
  #withoutLimits(text: string): string {
    return text.replaceAll(LIMIT, (_match, setting: string, ms: string) => {
      this.#localLimits ??= { ...this.#limits };
      if (setting === 'statement_timeout') this.#localLimits.statementMs = Number(ms);
      else this.#localLimits.idleMs = Number(ms);
      return 'SET LOCAL world.unused = 0';
    });
  }

  #replied(message: Message | undefined): void {
    if (message === undefined) {
      this.#ready.push(...this.#reply.splice(0));
      return;
    }
    const { type, body } = message;
    const isOwn = this.#awaited[0]?.isOwn === true;
    if (type === 'A') return void this.#ready.push(withoutNumbers(message));
    if (!isOwn) this.#reply.push(withoutNumbers(message));
    if (type === 'C' && !isOwn && body.toString('latin1') === 'COMMIT\0') this.#hasCommitted = true;
    if (type !== 'Z') return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.isEnding &&= this.#isLeaving;
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
  deliver(isBlocked: boolean): void {
    const ready = this.#ready.splice(0);
    const { losesOnce } = this.#database;
    if (this.#hasCommitted && losesOnce > 0 && world().random.once(losesOnce)) return this.#lose();
    this.#hasCommitted = false;
    world().on(this.#machine, () => {
      for (const bytes of ready) if (this.#client.writable) this.#client.write(bytes);
      if (this.#backend?.isClosed === true) this.#client.end();
    });
    if (this.#timer !== undefined || this.#isLeaving || this.#backend === undefined) return;
    const { statementMs, idleMs } = this.#localLimits ?? this.#limits;
    if (isBlocked && statementMs > 0) this.#limit(statementMs, () => this.#signal('cancel'));
    else if (!this.isBusy && this.#status !== 'I' && idleMs > 0) {
      this.#limit(idleMs, () => this.#expire());
    }
  }

  /** The connection ends before the reply. */
  #lose(): void {
    world().note(`${this.#machine.name} loses a commit reply`);
    this.#client.resetAndDestroy();
    this.#leave();
  }

  #limit(ms: number, end: () => void): void {
    const run = (): void => {
      this.#timer = undefined;
      end();
    };
    this.#timer = world().schedule(ms, run, this.#machine);
  }

  #signal(command: 'cancel' | 'terminate'): void {
    if (this.#backend === undefined || this.#backend.isClosed) return;
    this.isEnding = true;
    this.#database.signal(command, this.#backend);
  }

  #expire(): void {
    this.#client.end(fatal('25P03', 'terminating connection due to idle-in-transaction timeout'));
    this.#leave();
  }
}

function mark(names: Set<string>, name: string, is: boolean): void {
  if (is) names.add(name);
  else names.delete(name);
}
