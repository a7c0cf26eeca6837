/**
 * Scripted engines for tests of video jobs, and a ledger that only counts. Its counts are rows that
 * are written in the given transaction, so that rolled back operations do not count.
 */
import { writeFile } from 'node:fs/promises';
import type { Migration, Queryable, Store } from '../../src/db/db.ts';
import type {
  CreateResult,
  DownloadResult,
  DownloadOptions,
  EngineOrder,
  FindResult,
  PollResult,
  VideoEngines,
} from '../../src/engines/media/media.ts';
import type { CheckVideo } from '../../src/video/check-video.ts';
import type { VideoJob } from '../../src/video/job.ts';
import type { VideoMoney } from '../../src/video/video-money.ts';

export const TEST_MONEY_MIGRATIONS: readonly Migration[] = [
  {
    id: 'moneytest-0001',
    up: 'CREATE TABLE moneytest_move (kind TEXT NOT NULL, job_id TEXT NOT NULL, amount BIGINT NOT NULL);\n',
  },
];

/** Counts operations in the table. The next hold throws `refuse`; with `dies` it succeeds and never returns. */
export class TestMoney implements VideoMoney {
  readonly #store: Store;
  refuse: Error | undefined;
  dies = false;

  constructor(store: Store) {
    this.#store = store;
  }

  async hold(job: VideoJob): Promise<void> {
    if (this.refuse !== undefined) throw this.refuse;
    await this.#write(this.#store, 'hold', job);
    if (this.dies) await new Promise(() => undefined);
  }

  async settle(tx: Queryable, job: VideoJob): Promise<void> {
    await this.#write(tx, 'settle', job);
  }

  async charge(tx: Queryable, job: VideoJob): Promise<void> {
    await this.#write(tx, 'charge', job);
  }

  async refund(tx: Queryable, job: VideoJob): Promise<void> {
    await this.#write(tx, 'refund', job);
  }

  async release(tx: Queryable, job: VideoJob): Promise<void> {
    await this.#write(tx, 'release', job);
  }

  async #write(db: Queryable, kind: string, job: VideoJob): Promise<void> {
    const sql = 'INSERT INTO moneytest_move (kind, job_id, amount) VALUES ($1, $2, $3)';
    await db.query(sql, [kind, job.id, job.quoteNano]);
  }

  /** Operations that hold or end a job, such as `hold` and `settle`, in order. */
  async moves(jobId: string): Promise<string[]> {
    const rows = await this.#store.query<{ kind: string }>(
      "SELECT kind FROM moneytest_move WHERE job_id = $1 AND kind <> 'charge' ORDER BY kind",
      [jobId],
    );
    return rows.map(({ kind }) => kind);
  }

  /** Number of price quotes during a run; each returns the first price. */
  async charges(jobId: string): Promise<number> {
    return (await this.allCharges()).filter((id) => id === jobId).length;
  }

  async allCharges(): Promise<string[]> {
    const rows = await this.#store.query<{ job_id: string }>(
      "SELECT job_id FROM moneytest_move WHERE kind = 'charge'",
    );
    return rows.map(({ job_id: id }) => id);
  }
}

/** Accepts every video. */
export const anyVideo: CheckVideo = async () => {
  return { kind: 'fit', mimeType: 'video/mp4', sha256: 'hash' };
};

/** Responds with its fields. */
export class TestEngines implements VideoEngines {
  readonly orders: EngineOrder[] = [];
  readonly removed: string[] = [];
  /** Ids of the jobs that `find` was called for. */
  readonly sought: string[] = [];
  findResult: FindResult = { kind: 'unknown' };
  createResult: CreateResult | undefined;
  pollResult: PollResult = { kind: 'running', fraction: 0.25 };
  downloadResult: DownloadResult = { kind: 'done' };
  /** Awaited by `create` before it returns. */
  createGate: Promise<void> = Promise.resolve();
  /** Awaited by `download` before it returns. */
  gate: Promise<void> = Promise.resolve();

  async create(order: EngineOrder): Promise<CreateResult> {
    if (!(await order.beforeOrder({ engine: 'e', engineModel: 'm' }))) return { kind: 'not-ours' };
    this.orders.push(order);
    const engineJobId = `job-${this.orders.length}`;
    await this.createGate;
    return this.createResult ?? { kind: 'created', engine: 'e', engineModel: 'm', engineJobId };
  }

  async find({ id }: { id: string }): Promise<FindResult> {
    this.sought.push(id);
    return this.findResult;
  }

  async poll(): Promise<PollResult> {
    return this.pollResult;
  }

  /** For each downloaded video, whether there is space for a given size. */
  readonly rooms: DownloadOptions['canStore'][] = [];

  async download(
    _ref: object,
    path: string,
    { canStore: hasRoom }: DownloadOptions,
  ): Promise<DownloadResult> {
    this.rooms.push(hasRoom);
    await this.gate;
    if (this.downloadResult.kind === 'done') await writeFile(path, 'the video');
    return this.downloadResult;
  }

  async remove({ engineJobId }: { engineJobId: string }): Promise<void> {
    this.removed.push(engineJobId);
  }
}
