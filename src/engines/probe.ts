/**
 * Asks one engine what it offers, past queue and breakers: for `farebox check`, for discovery,
 * and for people who want to know now.
 */
import { z } from 'zod';
import type { Clock } from '../core/clock.ts';
import type { TimeLimits } from '../net/exchange.ts';
import type { ProbeResult } from './contract.ts';
import type { EngineState } from './engine-state.ts';
import { verdictOfFailure, verdictOfStatus } from './verdict.ts';

const LIMITS: TimeLimits = { connectMs: 2_000, firstByteMs: 5_000, idleMs: 5_000, totalMs: 10_000 };
const MAX_LIST_BYTES = 4 * 1024 * 1024;
const MAX_MODELS = 10_000;
const ModelList = z.looseObject({ data: z.array(z.unknown()) });
const ModelEntry = z.looseObject({ id: z.string() });

/** Never rejects. */
export async function probeEngine(
  engine: EngineState,
  clock: Clock,
  signal: AbortSignal | undefined,
): Promise<ProbeResult> {
  const startedMs = clock.monotonicMs();
  const latencyMs = (): number => clock.monotonicMs() - startedMs;
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let status = 0;
    const exchange = engine.pool.send(
      {
        method: 'GET',
        path: '/models',
        headers: engine.headers,
        body: null,
        limits: LIMITS,
        maxResponseBytes: MAX_LIST_BYTES,
      },
      {
        onHead: (headStatus) => {
          status = headStatus;
        },
        onData: (chunk) => chunks.push(chunk),
        onEnd: () => resolve(resultOf(status, Buffer.concat(chunks), latencyMs())),
        onFailure: ({ kind, message }) => {
          const { reason } = verdictOfFailure(kind);
          const known = status === 0 ? null : status;
          resolve({ ok: false, latencyMs: latencyMs(), reason, status: known, message });
        },
        onReleased: () => undefined,
      },
    );
    signal?.addEventListener('abort', () => exchange.abort(), { once: true });
  });
}

function resultOf(status: number, body: Buffer, latencyMs: number): ProbeResult {
  if (status >= 200 && status < 300) {
    const models = modelsIn(body);
    if (models !== null) return { ok: true, latencyMs, models };
    const message = 'GET /models did not answer with an OpenAI list of models';
    return { ok: false, latencyMs, reason: 'garbage', status, message };
  }
  const { reason } = verdictOfStatus(status);
  const message = `GET /models answered with HTTP ${status}`;
  return { ok: false, latencyMs, reason, status, message };
}

function modelsIn(body: Buffer): string[] | null {
  try {
    const { data } = ModelList.parse(JSON.parse(body.toString()));
    return data.slice(0, MAX_MODELS).flatMap((entry) => ModelEntry.safeParse(entry).data?.id ?? []);
  } catch {
    return null; // not JSON, or no list: the caller says so
  }
}
