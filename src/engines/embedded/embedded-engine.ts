/**
 * One embedded engine as the server offers it: fetches its packages, starts its process, and reports
 * its models with the reason if they are not available. An engine that cannot start is logged and
 * offers no models; missing packages are requested again later.
 */
import type { DiscoveredModel, ModelOutage } from '../../catalog/catalog.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import type { EngineSettings } from '../engines.ts';
import { type EngineSet, findPackages, packageSet } from './packages.ts';
import type { EngineAddress, EngineProcess } from './supervisor.ts';

export interface EngineOffer {
  readonly id: string;
  /** The packages that it uses; empty if it uses programs of the machine. */
  readonly needs: readonly EngineSet[];
  readonly process: EngineProcess;
  /** The settings of calls, except the address. */
  readonly calls: Omit<EngineSettings, 'id' | 'url' | 'apiKey'>;
  readonly models: () => readonly DiscoveredModel[];
  /** The id of a model that is not available before its files are downloaded. */
  readonly needsFetch?: string | undefined;
  /** Called when its packages are available, before it starts. */
  readonly onInstalled?: () => void;
}

export interface EmbeddedEngineParts {
  readonly dataFolder: string;
  /** Resolves when the packages are available; rejects with the command that fetches them. */
  readonly requirePackages: (set: EngineSet) => Promise<unknown>;
  readonly onChange: () => void;
  readonly clock: Clock;
  readonly log: Log;
}

export interface EngineProbe {
  readonly engine: string;
  readonly needs: readonly EngineSet[];
  readonly missing: readonly EngineSet[];
  /** Why it does not start although its packages are available. */
  readonly problem: string | undefined;
  readonly isStarting?: true;
}

const LOOK_MS = 2 * SECOND_MS;
/** Delay before packages that could not be fetched are requested again. */
const RETRY_MS = 10 * MINUTE_MS;

export class EmbeddedEngine {
  readonly #parts: EmbeddedEngineParts;
  readonly #offer: EngineOffer;
  /** The last known address; a process usually restarts before the next call. */
  #address: EngineAddress | undefined;
  #outage: ModelOutage | undefined;
  /** That of the model `needsFetch`. */
  #fetchOutage: ModelOutage | undefined;
  #problem: string | undefined;
  #starting: Promise<void> | undefined;
  #cancelTimer: (() => void) | undefined;
  #isClosed = false;

  /** `describe` receives the function that its process calls when it starts and ends. */
  constructor(parts: EmbeddedEngineParts, describe: (onChange: () => void) => EngineOffer) {
    this.#parts = parts;
    this.#offer = describe(() => this.#changed());
  }

  /** Resolves when the engine has started or failed. Never rejects. */
  start(): Promise<void> {
    this.#starting = this.#start();
    return this.#starting;
  }

  /** Starts the process if its packages are available, and ends it. Fetches nothing. */
  async tryOut(): Promise<EngineProbe> {
    const { id: engine, needs, process } = this.#offer;
    const missing = this.#missing();
    let problem: string | undefined;
    try {
      if (missing.length === 0) await process.address();
    } catch (error) {
      // The message is the result.
      problem = reasonOf(error);
    }
    await this.close();
    return { engine, needs, missing, problem };
  }

  probe(): EngineProbe {
    const { id: engine, needs, process } = this.#offer;
    const isRunning = process.runningAt !== undefined;
    const missing = isRunning ? [] : this.#missing();
    const problem = isRunning || missing.length > 0 ? undefined : this.#problem;
    const isStarting = !isRunning && missing.length === 0 && problem === undefined;
    return { engine, needs, missing, problem, ...(isStarting && { isStarting }) };
  }

  /** Empty until its process has started once. */
  settings(): EngineSettings[] {
    if (this.#address === undefined) return [];
    const { id, calls } = this.#offer;
    const { url, apiKey } = this.#address;
    return [{ ...calls, id, url: calls.protocol === 'rembg' ? url : `${url}/v1`, apiKey }];
  }

  models(): DiscoveredModel[] {
    if (this.#address === undefined && this.#outage === undefined) return [];
    return this.#offer.models().map((model) => {
      const isFetched = model.id === this.#offer.needsFetch;
      const outage = this.#outage ?? (isFetched ? this.#fetchOutage : undefined);
      return { ...model, ...(outage && { outage }) };
    });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelTimer?.();
    await this.#offer.process.close();
    await this.#starting;
  }

  async #start(): Promise<void> {
    const { log, clock, onChange, requirePackages } = this.#parts;
    const { id, needs, process, needsFetch, onInstalled } = this.#offer;
    try {
      for (const set of needs) await requirePackages(set);
      onInstalled?.();
      await process.address();
      this.#problem = undefined;
      this.#outage = undefined;
      if (needsFetch !== undefined) this.#followFetch();
    } catch (error) {
      if (this.#isClosed) return;
      // The reason names the missing package or program.
      this.#problem = reasonOf(error);
      log.warn({ engine: id, reason: this.#problem }, 'An embedded engine did not start');
      if (!(error instanceof Fault) || error.code !== 'FETCH_FAILED') return;
      this.#outage = {
        reason: 'needs packages that could not be downloaded; the server tries again',
      };
      this.#cancelTimer = clock.after(RETRY_MS, () => void this.start());
      onChange();
    }
  }

  /**
   * Starts the fetch of the model at once, so that calls fail before the caller uploads media if the
   * model is not available.
   */
  #followFetch(): void {
    const { clock, onChange } = this.#parts;
    const { process } = this.#offer;
    const look = (): void => {
      const before = this.#fetchOutage?.reason;
      process.fetchModel();
      this.#fetchOutage = process.modelOutage();
      if (this.#fetchOutage === undefined) stop();
      if (this.#fetchOutage?.reason !== before && !this.#isClosed) onChange();
    };
    const stop = clock.every(LOOK_MS, look);
    this.#cancelTimer = stop;
    look();
  }

  /** A restarted process may have another port. */
  #changed(): void {
    this.#address = this.#offer.process.runningAt ?? this.#address;
    if (!this.#isClosed) this.#parts.onChange();
  }

  #missing(): EngineSet[] {
    const { dataFolder } = this.#parts;
    return this.#offer.needs.filter(
      (set) => findPackages(packageSet(set), dataFolder) === undefined,
    );
  }
}
