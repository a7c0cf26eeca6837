/**
 * A machine with a Farebox server: the real program (`startApp`) with the clock, the identifiers and
 * the disk of the world. After a crash it starts again on what its disk has kept.
 */
import { mkdirSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { type Config, formatProblem, loadConfig } from '../../src/config/config.ts';
import { systemClock } from '../../src/core/clock.ts';
import { type Log, type LogFields, silentLog } from '../../src/core/log.ts';
import { StoreUnavailable, openProblem } from '../../src/db/db.ts';
import { type App, startApp } from '../../src/server/server.ts';
import { seededIds } from '../support/seeded-ids.ts';
import { MEDIA, keepAfterCrash } from './disk.ts';
import { Machine, world } from './world.ts';

const START_AGAIN_MS = 5_000;

export interface FareboxOptions {
  readonly name: string;
  readonly folder: string;
  readonly port: number;
  readonly yaml: string;
  /** Whether its videos are in a folder that it shares with others. */
  readonly sharesMedia: boolean;
}

export class FareboxMachine {
  readonly #options: FareboxOptions;
  machine: Machine | undefined;
  app: App | undefined;
  /** Counts its starts; each has a data folder and identifiers of its own. */
  starts = 0;

  constructor(options: FareboxOptions) {
    this.#options = options;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#options.port}/api/v1`;
  }

  /** The server, which must serve, and its machine. */
  get running(): { readonly app: App; readonly machine: Machine } {
    const { app, machine } = this;
    if (app === undefined || machine === undefined) throw new Error('The server does not run');
    return { app, machine };
  }

  get dataFolder(): string {
    return join(this.#options.folder, `${this.#options.name}-${this.starts}`);
  }

  /** Starts the server until it serves. */
  async keepRunning(): Promise<void> {
    while (this.app === undefined) await this.start();
  }

  /** Resolves when it serves or has crashed before. */
  async start(): Promise<void> {
    const before = this.dataFolder;
    this.starts += 1;
    mkdirSync(this.dataFolder, { recursive: true });
    if (this.starts > 1) keepAfterCrash(before, this.dataFolder);
    rmSync(before, { recursive: true, force: true });
    const { folder, sharesMedia } = this.#options;
    if (sharesMedia) symlinkSync(join(folder, MEDIA), join(this.dataFolder, MEDIA));
    const machine = new Machine(`${this.#options.name} ${this.starts}`);
    this.machine = machine;
    world().note(`${machine.name} starts`);
    const config = await this.#config();
    const opened = machine.run(() =>
      startApp({
        config,
        clock: systemClock(),
        ids: seededIds(world().random.between(1, 2 ** 31)),
        log: logOf(machine),
        version: '20260102.030405',
      }),
    );
    const app = await Promise.race([opened, machine.died]).catch((error: unknown) => {
      // The database is unreachable or its disk full: the operator starts it again later.
      const problem = openProblem(Object(error).cause, config.databaseUrl);
      if (!(error instanceof StoreUnavailable) && problem === undefined) throw error;
      world().note(`${machine.name} does not start: ${String(error)}`);
      world().kill(machine);
      return world().sleep(START_AGAIN_MS);
    });
    if (app === undefined || !machine.isAlive) return;
    this.app = app;
    world().note(`${machine.name} serves`);
  }

  /** Power loss. */
  crash(): void {
    const { machine } = this;
    if (machine === undefined || !machine.isAlive) return;
    world().note(`${machine.name} crashes`);
    world().kill(machine);
    this.app = undefined;
  }

  /** A stop by its operator, as on SIGTERM. */
  async stop(): Promise<void> {
    const { app, machine } = this;
    if (app === undefined || machine === undefined) return;
    world().note(`${machine.name} stops`);
    this.app = undefined;
    await Promise.race([machine.run(() => app.close()), machine.died]);
    if (machine.isAlive) world().kill(machine);
  }

  async #config(): Promise<Config> {
    const { port, yaml } = this.#options;
    const folder = this.dataFolder;
    const loaded = await loadConfig({
      env: { FAREBOX_DATA: folder, PORT: String(port) },
      cwd: folder,
      readFile: async () => yaml,
    });
    if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join('\n'));
    return loaded.config;
  }
}

function logOf(machine: Machine): Log {
  const noted =
    (level: string) =>
    (fields: LogFields, message: string): void =>
      world().note(`${machine.name} ${level}: ${message} ${JSON.stringify(fields)}`);
  return { ...silentLog, warn: noted('warn'), error: noted('error') };
}
