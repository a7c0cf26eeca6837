/**
 * Several real processes on one PostgreSQL, with callers that record every response, for tests and
 * for the lease scenarios. The records are compared with the books.
 */
import assert from 'node:assert/strict';
import { Pool } from 'undici';
import { systemClock } from '../../src/core/clock.ts';
import { systemIds } from '../../src/core/ids.ts';
import { silentLog } from '../../src/core/log.ts';
import { Ledger } from '../../src/billing/ledger/ledger.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import { openTestStore } from '../databases/stores.ts';
import { type FareboxProcess, removeFolder, startFarebox } from './farebox-process.ts';

/** The engine sees the prompt. */
const bodyOf = (content: string) => ({
  model: 'm',
  max_completion_tokens: 5,
  messages: [{ role: 'user', content }],
});
/** Five output tokens at 2 USD a million: what is held is what it costs. */
export const COST_USD = 0.00001;

/**
 * Settings of an engine whose callers pause between requests, so that some of a dozen are always
 * running and the machine has time for other work.
 */
export const THINKING = {
  kind: 'answer',
  afterMs: 30,
  content: 'Hi',
  promptTokens: 1,
  completionTokens: 5,
} as const;

/** How long a busy machine may take for what is seen within a second or two elsewhere. */
export const PATIENCE_MS = 60_000;
/** At once, on a busy machine; what waits for a process to be taken for dead takes half a minute. */
export const AT_ONCE_MS = 15_000;

export class ProcessFixture {
  readonly running = new Set<FareboxProcess>();
  readonly upstream: TestUpstream;

  static async open(): Promise<ProcessFixture> {
    const upstream = await TestUpstream.start();
    upstream.otherwise = { kind: 'json', usage: true };
    return new ProcessFixture(upstream);
  }

  private constructor(upstream: TestUpstream) {
    this.upstream = upstream;
  }

  async start(settings: Settings, args: readonly string[] = []): Promise<FareboxProcess> {
    const { program, isUnchecked, folder } = settings;
    const farebox = await startFarebox({
      yaml: yamlOf(settings, this.upstream.url),
      args,
      ...(folder === undefined ? {} : { folder }),
      ...(program === undefined ? {} : { binary: program }),
      ...(program === undefined && isUnchecked !== true ? {} : { uncheckedResponses: true }),
    });
    this.running.add(farebox);
    return farebox;
  }

  async end(farebox: FareboxProcess, signal?: 'SIGKILL'): Promise<number | null> {
    const code = await farebox.stop(signal);
    this.running.delete(farebox);
    removeFolder(farebox);
    return code;
  }

  async close(): Promise<void> {
    for (const farebox of this.running) {
      await farebox.stop('SIGKILL');
      removeFolder(farebox);
    }
    await this.upstream.kill();
  }
}

export interface Settings {
  readonly database: string;
  readonly creditUsd?: string;
  readonly requestsPerMinute?: number;
  /** Short timeouts, so that a test can wait until a fault is noticed. */
  readonly isNervous?: boolean;
  /** How long the database may take, when that is not short or long. */
  readonly replySeconds?: number;
  /** There are too many responses to validate them against the OpenAPI document. */
  readonly isUnchecked?: boolean;
  /** Another version's `main.ts`. */
  readonly program?: string;
  /** Time for running requests at the end. */
  readonly drainSeconds?: number;
  /** That another one had; default: a new one. */
  readonly folder?: string;
  /** More of the cluster's settings. */
  readonly cluster?: string;
}

function yamlOf(settings: Settings, upstreamUrl: string): string {
  const { database, creditUsd = '1000', requestsPerMinute = 10_000_000, cluster = '' } = settings;
  const [usual, dead] = settings.isNervous === true ? [1, 3] : [15, 60];
  const reply = settings.replySeconds ?? usual;
  return `listen: { host: 127.0.0.1, port: 0 }
database: ${JSON.stringify(database)}
cluster: { replyTimeoutSeconds: ${reply}, deadAfterSeconds: ${dead}${cluster} }
http: { drainSeconds: ${settings.drainSeconds ?? 5} }
embedded: { enabled: false }
discovery: { enabled: false }
log: { level: warn }
engines: { fake: { url: ${upstreamUrl} } }
models:
  - { id: m, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 0, output: 2 }, replicas: [{ engine: fake }] }
limits:
  starterCreditUsd: "${creditUsd}"
  minimumCreditUsd: 0
  keyConcurrency: 100000
  guard: { failures: 1000000 }
  plans: { staff: { text: { XS: &wide { requestsPerMinute: ${requestsPerMinute}, tokensPerMinute: 1000000000 }, S: *wide, M: *wide, L: *wide } } }
`;
}

export interface Seen {
  readonly question: Question;
  readonly status: number;
  /** Start of the request, by `performance.now()`. */
  readonly startedMs: number;
  readonly requestId: string;
  readonly usd: number;
  readonly retryAfter: string | undefined;
  /** When the window of the rate limit ends. */
  readonly window: string;
  readonly tookMs: number;
}

/** The caller and its credentials. */
export interface Question {
  readonly secret: string;
  readonly metadata?: Readonly<Record<string, string>>;
  /** The `Idempotency-Key`. */
  readonly key?: string;
}

export async function ask(pool: Pool, question: Question): Promise<Seen> {
  const { secret, metadata, key } = question;
  const startedMs = performance.now();
  const answer = await pool.request({
    path: '/api/v1/chat/completions',
    method: 'POST',
    headers: {
      authorization: `Bearer ${secret}`,
      'content-type': 'application/json',
      ...(key === undefined ? {} : { 'idempotency-key': key }),
    },
    body: JSON.stringify({ ...bodyOf(key ?? 'Hi'), metadata }),
  });
  const body = (await answer.body.json()) as { cost?: { usd: number } };
  return {
    question,
    status: answer.statusCode,
    startedMs,
    requestId: String(answer.headers['x-request-id']),
    usd: body.cost?.usd ?? 0,
    retryAfter: answer.headers['retry-after']?.toString(),
    window: String(answer.headers['x-ratelimit-reset-requests']),
    tookMs: performance.now() - startedMs,
  };
}

/** Sends `count` requests at once through all processes in turn. */
export async function burst(
  processes: readonly FareboxProcess[],
  secret: string,
  count: number,
  connections = 64,
): Promise<Seen[]> {
  const pools = processes.map((one) => new Pool(new URL(one.url).origin, { connections }));
  const seen: Seen[] = [];
  let sent = 0;
  const client = async (pool: Pool): Promise<void> => {
    while (sent < count) {
      sent += 1;
      seen.push(await ask(pool, { secret }));
    }
  };
  await Promise.all(
    pools.flatMap((pool) => Array.from({ length: connections }, () => client(pool))),
  );
  await Promise.all(pools.map((pool) => pool.close()));
  return seen;
}

export function count<T>(values: readonly T[], test_: (value: T) => boolean): number {
  return values.filter(test_).length;
}

export interface Books {
  readonly openHolds: number;
  readonly paid: ReadonlyMap<string, number>;
}

/** Fails on any difference of the audit. */
export async function readBooks(database: string): Promise<Books> {
  const store = await openTestStore(database);
  try {
    const ledger = new Ledger({ store, clock: systemClock(), ids: systemIds(), log: silentLog });
    const report = await ledger.audit();
    assert.deepEqual(report.differences, []);
    const rows = await store.query<{ request_id: string; usd_nano: bigint }>(
      'SELECT request_id, usd_nano FROM ledger_usage',
    );
    const paid = new Map(rows.map((row) => [row.request_id, Number(row.usd_nano) / 1e9]));
    return { openHolds: report.openHolds, paid };
  } finally {
    await store.close();
  }
}

/** Waits for what `look` finds; `what` says what was not found in time. */
export async function soon<T>(
  what: string | (() => string),
  limitMs: number,
  look: () => Promise<T | undefined>,
) {
  const untilMs = performance.now() + limitMs;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    const isLate = performance.now() > untilMs;
    if (isLate) assert.fail(`${typeof what === 'string' ? what : what()} within ${limitMs} ms`);
    await systemClock().sleep(100);
  }
}

/**
 * Clients that send requests until they are stopped, and record every complete response. `pauseMs`
 * is the time between two requests of a client; it keeps some requests running and leaves CPU time
 * for other work.
 */
export function keepAsking(
  farebox: () => FareboxProcess | undefined,
  question: () => Question,
  seen: Seen[],
  pauseMs = 0,
  clients = 12,
) {
  const asking = { isOver: false };
  const client = async (): Promise<void> => {
    let at: string | undefined;
    let pool: Pool | undefined;
    while (!asking.isOver) {
      const target = farebox();
      if (target === undefined) {
        await systemClock().sleep(20);
        continue;
      }
      const origin = new URL(target.url).origin;
      if (origin !== at) {
        void pool?.destroy();
        pool = new Pool(origin, { connections: 1 });
        at = origin;
      }
      try {
        const answer = await ask(pool as Pool, question()); // made above
        seen.push(answer);
        if (answer.status !== 200) await systemClock().sleep(Math.max(20, pauseMs));
        else if (pauseMs > 0) await systemClock().sleep(pauseMs);
      } catch {
        // The process was killed in the middle: what was not seen in full is not counted.
        await systemClock().sleep(20);
      }
    }
    await pool?.destroy();
  };
  const asked = Array.from({ length: clients }, client);
  return async (): Promise<void> => {
    asking.isOver = true;
    await Promise.all(asked);
  };
}
