/**
 * Queries the models of one engine, bypassing queue and breakers: for `farebox check`, discovery
 * and manual checks.
 */
import { z } from 'zod';
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
/** Some providers send the list without an object around it. */
const ModelList = z.union([
  z.looseObject({ data: z.array(z.unknown()) }),
  z.array(z.unknown()).transform((data) => ({ data })),
]);
const ModelEntry = z.looseObject({ id: z.string() });

/** Never rejects. */
export async function probeEngine(engine: EngineState, clock: Clock): Promise<ProbeResult> {
  const startedMs = clock.monotonicMs();
  const request = {
    method: 'GET',
    // Anthropic lists 20 models unless a limit is given.
    path: engine.settings.protocol === 'anthropic' ? '/models?limit=1000' : '/models',
    headers: engine.headers,
    body: null,
    limits: LIMITS,
    maxResponseBytes: MAX_LIST_BYTES,
  } as const;
  const response = await fetchWhole(engine.pool, request);
  const latencyMs = clock.monotonicMs() - startedMs;
  if (response.ok) return resultOf(response.status, response.body, latencyMs);
  const { reason } = verdictOfFailure(response.kind);
  const status = response.status === 0 ? null : response.status;
  return { ok: false, latencyMs, reason, status, message: response.message };
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

function resultOf(status: number, body: Buffer, latencyMs: number): ProbeResult {
  if (status >= 200 && status < 300) {
    const models = modelsIn(body);
    if (models !== null) return { ok: true, latencyMs, models };
    const message = 'GET /models did not return an OpenAI list of models';
    return { ok: false, latencyMs, reason: 'garbage', status, message };
  }
  const { reason } = verdictOfStatus(status);
  const message = `GET /models returned HTTP ${status}`;
  return { ok: false, latencyMs, reason, status, message };
}

function modelsIn(body: Buffer): string[] | null {
  try {
    const { data } = ModelList.parse(JSON.parse(body.toString()));
    const ids = data.slice(0, MAX_MODELS).map((entry) => ModelEntry.safeParse(entry).data?.id);
    return ids.flatMap((id) => (id === undefined ? [] : listedName(id)));
  } catch {
    return null; // invalid JSON or no list: handled by the caller
  }
}

/** Gemini lists `models/<name>`, and serves both names. */
export function listedName(id: string): string {
  return id.replace(/^models\//, '');
}
