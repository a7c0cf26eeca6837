/**
 * Limits of callers while processes that have leased parts of them are killed: the spending cap of
 * a key, a budget per tag value, and a rate limit. Each round has its own key and tag, so that a
 * kill finds them half used; afterwards each is used up to the last nano-USD.
 */
import assert from 'node:assert/strict';
import { Pool } from 'undici';
import { MINUTE_MS, SECOND_MS, systemClock } from '../../src/core/clock.ts';
import { openTestStore } from '../databases/stores.ts';
import type { FareboxProcess } from './farebox-process.ts';
import { type Fixture, deadHaveNothing, proven, statuses } from './lease-books.ts';
import {
  COST_USD,
  PATIENCE_MS,
  type Question,
  type Seen,
  ask,
  count,
  keepAsking,
  soon,
} from './process-fixture.ts';

/** Number of requests that a cap and a budget allow, and that a rate limit allows per minute. */
const REQUESTS_OF_CAP = 300;
const REQUESTS_OF_MINUTE = 250;
const CAP_USD = REQUESTS_OF_CAP * COST_USD;
const CAP_NANO = BigInt(Math.round(CAP_USD * 1e9));
const TAG = 'run';
/** Number of callers of each kind per process. */
const CLIENTS = 4;
const CLIENTS_AT_THE_END = 8;

/** Kills one process a round; of more than two, another with it in every third round. */
export async function caps(
  fixture: Omit<Fixture, 'postgres'>,
  rounds: number,
  processes: number,
): Promise<string> {
  const { servers, database, ends, pauseMs } = fixture;
  const settings = { database, isNervous: true, isUnchecked: true };
  const first = await servers.start(settings);
  const others = Array.from({ length: processes - 1 }, () => servers.start(settings));
  const running: (FareboxProcess | undefined)[] = [first, ...(await Promise.all(others))];
  const bounds = await makeBounds(first, rounds);
  const { limited } = bounds;
  let round = 0;
  const seen: Seen[] = [];
  const kinds = [
    () => bounds.capped[round] ?? limited,
    () => bounds.tagged[round] ?? limited,
    () => limited,
  ];
  const stops = running.flatMap((_, at) =>
    kinds.map((kind) => keepAsking(() => running[at], kind, seen, pauseMs, CLIENTS)),
  );
  ends.push(...stops);
  const killAndStart = async (at: number): Promise<void> => {
    const victim = running[at] ?? assert.fail('each place has its process');
    running[at] = undefined;
    await servers.end(victim, 'SIGKILL');
    running[at] = await servers.start(settings);
  };
  let killed = 0;
  for (; round < rounds; round += 1) {
    await systemClock().sleep(150 + (round % 5) * 40);
    const victims = processes > 2 && round % 3 === 2 ? [round, round + 1] : [round];
    await Promise.all(victims.map((victim) => killAndStart(victim % processes)));
    killed += victims.length;
  }
  await soon('the limit is met', PATIENCE_MS, async () => {
    return seen.some(({ question, status }) => question === limited && status === 429) || undefined;
  });
  for (const stop of stops) await stop();
  await deadHaveNothing(database);
  const alive = running.flatMap((one) => one ?? []);
  for (const question of [...bounds.capped, ...bounds.tagged]) {
    await spendToEnd(alive, question, seen);
    assertSpentOnce(seen.filter((one) => one.question === question));
  }
  await assertCharged(database, bounds);
  assertWithinMinutes(seen.filter(({ question }) => question === limited));
  return `${killed} processes killed: ${statuses(seen)}; ${await proven(database, seen)}`;
}

/** Credentials and tags, one of each per round. */
interface Bounds {
  readonly capped: readonly KeyQuestion[];
  readonly tagged: readonly TagQuestion[];
  readonly limited: Question;
}

interface KeyQuestion extends Question {
  readonly keyId: string;
}

interface TagQuestion extends Question {
  readonly metadata: { readonly [TAG]: string };
}

async function makeBounds(farebox: FareboxProcess, rounds: number): Promise<Bounds> {
  const secret = farebox.secret ?? assert.fail('the first process has made the owner');
  const manage = async (method: 'GET' | 'POST', path: string, body?: object): Promise<unknown> => {
    const answer = await fetch(farebox.url + path, {
      method,
      headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    assert.ok(answer.ok, `${path}: ${text}`);
    return JSON.parse(text);
  };
  const { data: accounts } = (await manage('GET', '/admin/accounts')) as {
    readonly data: readonly { readonly id: string }[];
  };
  const path = `/admin/accounts/${accounts[0]?.id}/keys`;
  const newKey = async (settings: object): Promise<KeyQuestion> => {
    const made = await manage('POST', path, {
      apiKeyType: 'INFERENCE',
      description: 'bound',
      ...settings,
    });
    const { data } = made as { readonly data: { readonly id: string; readonly apiKey: string } };
    return { secret: data.apiKey, keyId: data.id };
  };
  await manage('POST', '/budgets', { tag: TAG, period: 'LIFETIME', usd: CAP_USD });
  const limited = await newKey({ limits: { requestsPerMinute: REQUESTS_OF_MINUTE } });
  const cap = { consumptionLimit: { usd: CAP_USD }, limitPeriod: 'LIFETIME' };
  const capped: KeyQuestion[] = [];
  for (let round = 0; round < rounds; round += 1) capped.push(await newKey(cap));
  const tagged = capped.map((_, round) => ({ secret, metadata: { [TAG]: `round-${round}` } }));
  return { capped, tagged, limited };
}

/** Sends requests through all processes until each rejects them. */
async function spendToEnd(
  processes: readonly FareboxProcess[],
  question: Question,
  seen: Seen[],
): Promise<void> {
  await Promise.all(
    processes.map(async ({ url }) => {
      const pool = new Pool(new URL(url).origin, { connections: CLIENTS_AT_THE_END });
      const client = async (): Promise<void> => {
        for (;;) {
          const answer = await ask(pool, question);
          seen.push(answer);
          // On a busy machine the database may take longer than nervous processes wait for it.
          if (answer.status === 503) {
            await systemClock().sleep(20);
            continue;
          }
          assert.ok(answer.status === 200 || answer.status === 402, String(answer.status));
          if (answer.status === 402) return;
        }
      };
      await Promise.all(Array.from({ length: CLIENTS_AT_THE_END }, client));
      await pool.close();
    }),
  );
}

/** After the first response that everything is used up, no later request may succeed. */
function assertSpentOnce(seen: readonly Seen[]): void {
  const spentMs = Math.min(
    ...seen.flatMap(({ status, startedMs, tookMs }) => (status === 402 ? startedMs + tookMs : [])),
  );
  const late = count(seen, ({ status, startedMs }) => status === 200 && startedMs > spentMs);
  assert.equal(late, 0, 'served after a 402');
}

/** Each cap and each budget is charged to its last nano. */
async function assertCharged(database: string, { capped, tagged }: Bounds): Promise<void> {
  const store = await openTestStore(database);
  const rows = await store.query<{ key_id: string; metadata: string | null; usd: bigint }>(
    `SELECT key_id, metadata, CAST(sum(usd_nano) AS BIGINT) AS usd FROM ledger_usage
     GROUP BY key_id, metadata`,
  );
  await store.close();
  for (const { keyId } of capped) {
    assert.equal(rows.find((row) => row.key_id === keyId)?.usd, CAP_NANO, keyId);
  }
  for (const { metadata } of tagged) {
    const tags = JSON.stringify(metadata);
    assert.equal(rows.find((row) => row.metadata === tags)?.usd, CAP_NANO, tags);
  }
}

/**
 * No minute has let more through than its limit; what a killed process had leased of it is lost. The
 * response to a request of the minute before can report this one, so requests that began before do
 * not count.
 */
function assertWithinMinutes(seen: readonly Seen[]): void {
  for (const [window, answers] of Map.groupBy(seen, (one) => one.window)) {
    const beginMs = Number(window) * SECOND_MS - MINUTE_MS - performance.timeOrigin;
    const passed = count(
      answers,
      ({ status, startedMs }) => status === 200 && startedMs >= beginMs,
    );
    assert.ok(passed <= REQUESTS_OF_MINUTE, `${passed} passed in the minute until ${window}`);
  }
}
