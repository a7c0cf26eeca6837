/**
 * Queries the models of one engine, bypassing queue and breakers: for `farebox check`, discovery
 * and manual checks.
 */
import * as z from 'zod';
import type { Clock } from '../core/clock.ts';
import type { TimeLimits } from '../net/exchange.ts';
import { fetchWhole } from '../net/upstream-pool.ts';
import type { ProbeResult } from './contract.ts';
import { errorMeaning } from './error-meanings.ts';
import type { EngineState } from './engine-state.ts';
import { verdictOfFailure, verdictOfStatus } from './verdict.ts';

const LIMITS: TimeLimits = { connectMs: 2_000, firstByteMs: 5_000, idleMs: 5_000, totalMs: 10_000 };
const MAX_LIST_BYTES = 4 * 1024 * 1024;
const MAX_MODELS = 10_000;
const MAX_PAGES = 10;
/** Some providers send the list without an object around it. */
const ModelList = z.union([
  z.looseObject({
    data: z.array(z.unknown()),
    has_more: z.unknown().optional(),
    last_id: z.string().nullish().catch(undefined),
  }),
  z.array(z.unknown()).transform((data) => ({ data, has_more: false, last_id: undefined })),
]);
const ModelEntry = z.looseObject({ id: z.string() });

/** Never rejects. */
export async function probeEngine(engine: EngineState, clock: Clock): Promise<ProbeResult> {
  const startedMs = clock.monotonicMs();
  // Anthropic lists 20 models unless a limit is given.
  const query = engine.settings.protocol === 'anthropic' ? ['limit=1000'] : [];
  const models = new Set<string>();
  let latencyMs: number | undefined;
  let after: string | undefined;
  for (let pages = 0; pages < MAX_PAGES; pages += 1) {
    const search =
      after === undefined ? query : [...query, `after_id=${encodeURIComponent(after)}`];
    const response = await fetchWhole(engine.pool, {
      method: 'GET',
      path: search.length === 0 ? '/models' : `/models?${search.join('&')}`,
      headers: engine.headers,
      body: null,
      limits: LIMITS,
      maxResponseBytes: MAX_LIST_BYTES,
    });
    latencyMs ??= clock.monotonicMs() - startedMs;
    if (!response.ok) {
      const { reason } = verdictOfFailure(response.kind);
      const status = response.status === 0 ? null : response.status;
      return { ok: false, latencyMs, reason, status, message: response.message };
    }
    const page = pageOf(response.status, response.body);
    if ('reason' in page) return { ok: false, latencyMs, ...page };
    for (const id of page.ids) if (models.size < MAX_MODELS) models.add(id);
    after = page.next;
    if (after === undefined) break;
  }
  return { ok: true, latencyMs: latencyMs ?? 0, models: [...models] };
}

export type ChatPath = '/chat/completions' | '/responses';

export type ChatProbe =
  | 'served'
  /** The model exists, but not behind this path. */
  | 'unsupported'
  /** There is no such path, or no such model. */
  | 'missing'
  | 'unknown';

/**
 * Whether the engine serves a model behind a path. The request has no messages, so that the engine
 * rejects it before any work. Never rejects.
 */
export async function probeChat(
  engine: EngineState,
  path: ChatPath,
  model: string,
): Promise<ChatProbe> {
  const isChat = path === '/chat/completions';
  const body = isChat ? { messages: [], max_tokens: 1 } : { input: [], store: false };
  const response = await fetchWhole(engine.pool, {
    method: 'POST',
    path,
    headers: engine.jsonHeaders,
    body: Buffer.from(JSON.stringify({ model, ...body })),
    limits: LIMITS,
    maxResponseBytes: MAX_LIST_BYTES,
  });
  if (!response.ok) return 'unknown';
  const { status } = response;
  if (errorMeaning(status, response.body) === 'unsupported') return 'unsupported';
  if (status === 404 || status === 405) return 'missing';
  return status < 500 && status !== 401 && status !== 403 ? 'served' : 'unknown';
}

/**
 * Whether the engine is reachable: a connection is open, or it sends any response. A slow engine
 * counts as reachable, and an embedded one is started when it is called. Never rejects.
 */
export async function isReachable(engine: EngineState, clock: Clock): Promise<boolean> {
  if (engine.settings.isOwn === true || engine.pool.connected > 0) return true;
  const probe = await probeEngine(engine, clock);
  return probe.ok || probe.reason !== 'unreachable';
}

type Problem = Omit<Extract<ProbeResult, { ok: false }>, 'ok' | 'latencyMs'>;

function pageOf(status: number, body: Buffer): ModelPage | Problem {
  if (status >= 200 && status < 300) {
    const page = pageIn(body);
    if (page !== null) return page;
    const message = 'GET /models did not return an OpenAI list of models';
    return { reason: 'garbage', status, message };
  }
  const { reason } = verdictOfStatus(status);
  return { reason, status, message: `GET /models returned HTTP ${status}` };
}

interface ModelPage {
  readonly ids: readonly string[];
  /** The id after which the next page of Anthropic's list begins. */
  readonly next: string | undefined;
}

function pageIn(body: Buffer): ModelPage | null {
  try {
    const list = ModelList.parse(JSON.parse(body.toString()));
    const ids = list.data.flatMap((entry) => ModelEntry.safeParse(entry).data?.id ?? []);
    const next = list.has_more === true ? list.last_id : undefined;
    return { ids: ids.map(listedName), next: next ?? undefined };
  } catch {
    return null; // invalid JSON or no list: handled by the caller
  }
}

/** Gemini lists `models/<name>`, and serves both names. */
export function listedName(id: string): string {
  return id.replace(/^models\//, '');
}
