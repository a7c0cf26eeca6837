/** `POST /batches`, `GET /batches`, `GET /batches/{id}`, `POST /batches/{id}/cancel`. */
import { type Clock, DAY_MS, HOUR_MS, SECOND_MS } from '../core/clock.ts';
import { Fault, invalidField } from '../core/faults.ts';
import { readBody, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { get, JSON_TYPE, type Route, SMALL_JSON_BODY } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import { type Batch, type NewBatch, batchBody } from './batch.ts';
import * as DESCRIPTIONS from './describe.ts';
import type { FilesParts } from './files.ts';
import { pathOf } from './lines.ts';
import { BatchesQuery, CreateBatch, pageOf } from './schema.ts';

export interface BatchRouteParts extends FilesParts {
  /** Paths below the base path whose requests can be in a batch. */
  readonly endpoints: () => readonly string[];
  /** Call this when a batch was queued or cancelled. */
  readonly nudge: (batchId: string) => void;
  readonly clock: Clock;
}

const WINDOW_MS = 24 * HOUR_MS;
const OPEN_RETRY_SECONDS = 60;

export function batchRoutes(parts: BatchRouteParts): Route[] {
  const auth = 'key-or-wallet';
  return [
    {
      method: 'POST',
      path: '/batches',
      auth,
      body: SMALL_JSON_BODY,
      keepsResponse: true,
      describe: DESCRIPTIONS.CREATE_BATCH,
      handle: (context) => create(parts, context),
    },
    get('/batches', auth, DESCRIPTIONS.LIST_BATCHES, (context) => list(parts, context)),
    get('/batches/:id', auth, DESCRIPTIONS.READ_BATCH, async (context) => {
      await context.json(200, batchBody(await batchOf(parts, context)));
    }),
    {
      method: 'POST',
      path: '/batches/:id/cancel',
      auth,
      describe: DESCRIPTIONS.CANCEL_BATCH,
      handle: (context) => cancel(parts, context),
    },
  ];
}

async function create(parts: BatchRouteParts, context: RequestContext): Promise<void> {
  const { batches, files, settings, clock, ids } = parts;
  const request = readBody(context, CreateBatch);
  requireEndpoint(parts, request.endpoint);
  const { caller, keeper } = context;
  const { accountId } = caller;
  const nowMs = clock.nowMs();
  const mostMs = settings.keepDays * DAY_MS;
  const keepMs = (request.output_expires_after?.seconds ?? Infinity) * SECOND_MS;
  const batch: NewBatch = {
    id: `batch_${ids.ordered(nowMs)}`,
    accountId,
    keyId: caller.keyId,
    capId: capOf(caller),
    country: context.country,
    endpoint: request.endpoint,
    inputFileId: request.input_file_id,
    metadata: request.metadata ?? null,
    keepMs: Math.min(keepMs, mostMs),
    createdMs: nowMs,
    expiresMs: nowMs + WINDOW_MS,
  };
  const body = await batches.alone(accountId, async (tx) => {
    const file = await files.find(accountId, batch.inputFileId, nowMs, tx);
    if (file === undefined) throw new Fault('FILE_NOT_FOUND');
    if (file.purpose !== 'batch') {
      throw invalidField(['input_file_id'], 'The file must have the purpose "batch"');
    }
    const written = await batches.insert(tx, batch, settings.maxOpenBatches);
    if (written === undefined) throw tooManyOpen(settings.maxOpenBatches);
    await files.keepUntil(tx, file.id, written.expiresMs + WINDOW_MS);
    const response = Buffer.from(JSON.stringify(batchBody(written)));
    await keeper?.keep(tx, { type: JSON_TYPE, body: response });
    return response;
  });
  keeper?.kept();
  parts.nudge(batch.id);
  await context.bytes(200, JSON_TYPE, body);
}

/** The cap of a wallet's token; the cap of a key is found by the key. */
function capOf({ kind, capId }: Caller): string {
  return kind === 'wallet' ? (capId ?? '') : '';
}

function requireEndpoint({ endpoints }: BatchRouteParts, endpoint: string): void {
  const served = endpoints();
  if (served.includes(pathOf(endpoint))) return;
  const known = served.map((path) => `"/v1${path}"`).join(', ');
  throw invalidField(['endpoint'], `Must be one of ${known}`);
}

function tooManyOpen(maxOpen: number): Fault {
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: `At most ${maxOpen} batches may be open: wait until one ends, or cancel one`,
    retryAfterSeconds: OPEN_RETRY_SECONDS,
  });
}

/** Throws `BATCH_NOT_FOUND` (404) for an unknown batch or that of another account. */
async function batchOf(
  { batches }: BatchRouteParts,
  { caller, parameters }: RequestContext,
  id = parameters['id'] ?? '',
): Promise<Batch> {
  const batch = await batches.find(caller.accountId, id);
  if (batch !== undefined) return batch;
  throw new Fault('BATCH_NOT_FOUND');
}

async function list(parts: BatchRouteParts, context: RequestContext): Promise<void> {
  const { limit, after: afterId } = readQuery(context, BatchesQuery);
  const after = afterId === undefined ? undefined : await batchOf(parts, context, afterId);
  const found = await parts.batches.list(context.caller.accountId, limit + 1, after);
  await context.json(200, pageOf(found.map(batchBody), limit));
}

async function cancel(parts: BatchRouteParts, context: RequestContext): Promise<void> {
  const { batches, clock } = parts;
  const { accountId } = context.caller;
  const id = context.parameters['id'] ?? '';
  const cancelled = await batches.cancel(accountId, id, clock.nowMs());
  if (cancelled !== undefined) {
    parts.nudge(id);
    return await context.json(200, batchBody(cancelled));
  }
  const batch = await batchOf(parts, context);
  // Cancel is idempotent.
  if (batch.state === 'cancelling') return await context.json(200, batchBody(batch));
  throw new Fault('BATCH_HAS_ENDED', {
    message: `The batch is "${batch.state}" and can no longer be cancelled`,
  });
}
