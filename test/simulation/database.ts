/**
 * A real PostgreSQL, driven one message at a time. The server listens on the network of the world as a
 * primary and a standby, and passes each group of messages on to a real backend. Backends run one at a
 * time, each until it is idle or waits for a lock, so that transactions of several processes interleave
 * by the delays of the network and the seed alone. A backend that waits is suspended: a lock that it
 * receives does not wake it before its turn. All times are those of the world: the clock of the
 * database, `statement_timeout`, and the time limit of an idle transaction.
 *
 * Backends share one database, so a failover loses no commit, as with a synchronous standby.
 */
import { execFile } from 'node:child_process';
import net from 'node:net';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import pg from 'pg';
import { type TestPostgres, startPostgres } from '../databases/postgres.ts';
import { Backend } from './postgres-backend.ts';
import { type Message, startupWith } from './postgres-messages.ts';
import { Session } from './postgres-session.ts';
import { Machine, world } from './world.ts';

/** Captured before the edges replace it. */
const realImmediate = setImmediate;

const DATABASE_PORTS = [5_001, 5_002];
const MIGRATE = fileURLToPath(new URL('migrate-database.ts', import.meta.url));
const TEMPLATE = 'migrated';
/** Real time between two checks of a backend that runs. */
const LOOK_EVERY_MS = 0.05;
/** Memory for `Atomics.wait`, which pauses this thread for a time. No thread changes the memory. */
const unchanged = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));
const SETTINGS = {
  user: 'postgres',
  // The driver keeps time limits itself, and looks for deadlocks.
  statement_timeout: '0',
  idle_in_transaction_session_timeout: '0',
  deadlock_timeout: '2000000000',
  max_parallel_workers_per_gather: '0',
  'world.now': '0',
};

export class SimulatedPostgres {
  readonly #server: TestPostgres;
  readonly #control: pg.Client;
  readonly sessions = new Set<Session>();
  machines: Machine[] = [];
  /** One reply to a commit in so many is lost, with its connection; 0 for none. */
  losesOnce = 0;
  /** Whether only commits with a charge count. */
  losesOnlyCharges = false;
  #primary = 0;
  #database = 'run_0';
  #runs = 0;
  #isTouched = false;
  #isNotified = false;

  private constructor(server: TestPostgres) {
    this.#server = server;
    this.#control = new pg.Client({ connectionString: server.url('postgres') });
  }

  /** Call it before the edges are replaced. */
  static async start(): Promise<SimulatedPostgres> {
    // Backends read files themselves, so that one that sleeps waits for a lock.
    const server = await startPostgres({ settings: ['io_method=sync'] });
    const database = new SimulatedPostgres(server);
    await database.#control.connect();
    await database.#control.query(`CREATE DATABASE ${TEMPLATE}`);
    await promisify(execFile)(process.execPath, [MIGRATE, server.url(TEMPLATE)]);
    return database;
  }

  get url(): string {
    const hosts = DATABASE_PORTS.map((port) => `127.0.0.1:${port}`).join(',');
    return `postgres://postgres:unused@${hosts}/farebox`;
  }

  /** A new database for the next run, with a primary and a standby in its world. */
  async enter(): Promise<void> {
    for (const session of this.sessions) session.kill();
    this.sessions.clear();
    this.#runs += 1;
    const database = `run_${this.#runs}`;
    const copy = `TEMPLATE ${TEMPLATE} STRATEGY FILE_COPY`;
    await this.#control.query(`CREATE DATABASE ${database} ${copy}`);
    await this.#control.query(`DROP DATABASE IF EXISTS ${this.#database} WITH (FORCE)`);
    this.#database = database;
    this.#primary = 0;
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
    const machine = new Machine(`database ${place + 1}`);
    machine.run(() => {
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
      ...SETTINGS,
      database: this.#database,
      default_transaction_read_only: place === this.#primary ? 'off' : 'on',
    };
    return new Backend(this.#server.socketPath, startupWith(startup, settings), received);
  }

  /** A backend has something to run. */
  touch(): void {
    this.#isTouched = true;
  }

  /** A transaction has sent notifications. */
  notified(): void {
    this.#isNotified = true;
  }

  /** Lets backends run, in an order of the seed, until each is idle or waits for a lock. */
  async #quiet(): Promise<boolean> {
    if (!this.#isTouched) return false;
    this.#isTouched = false;
    for (;;) {
      const due = [...this.sessions].filter((session) => session.isDue);
      if (due.length > 0) await this.#run(due.length === 1 ? due[0]! : world().random.pick(due));
      else if (!this.#fetchNotifications()) break;
    }
    for (const session of this.sessions) {
      session.deliver();
      if (session.isOver) this.sessions.delete(session);
    }
    return true;
  }

  async #run(session: Session): Promise<void> {
    const backend = session.go();
    if (backend === undefined) return;
    for (;;) {
      await replies();
      if (!session.isBusy) return;
      if (!backend.isAsleep) {
        Atomics.wait(unchanged, 0, 0, LOOK_EVERY_MS);
        continue;
      }
      const { receivedBytes } = backend;
      // It can have replied before it fell asleep.
      await replies();
      if (session.isBusy && backend.receivedBytes === receivedBytes) break;
    }
    backend.suspend();
    if (await this.#isDeadlocked(backend)) session.breakDeadlock();
  }

  /** Whether the newest backend that waits has completed a circle. */
  async #isDeadlocked({ pid }: Backend): Promise<boolean> {
    const waiting = [...this.sessions].flatMap(({ backend }) =>
      backend?.isSuspended === true ? backend.pid : [],
    );
    if (waiting.length < 2) return false;
    const { rowCount } = await this.#control.query(
      `WITH RECURSIVE waits AS MATERIALIZED (
         SELECT pid, unnest(pg_blocking_pids(pid)) AS blocker
         FROM unnest('{${waiting.join()}}'::int[]) AS pid
       ), blockers AS (
         SELECT blocker FROM waits WHERE pid = ${pid}
         UNION SELECT waits.blocker FROM waits JOIN blockers ON waits.pid = blockers.blocker
       )
       SELECT FROM blockers WHERE blocker = ${pid}`,
    );
    return rowCount !== 0;
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

/** Lets what has arrived at our sockets be read. The first of two turns can be the end of one. */
async function replies(): Promise<void> {
  for (let turns = 0; turns < 2; turns += 1) {
    await new Promise((resolve) => void realImmediate(resolve));
  }
}
