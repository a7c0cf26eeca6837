/** Wires batches: endpoints, spare capacity of engines, and requests as their caller. */
import {
  type Batch,
  type BatchHost,
  type Endpoint,
  type LineResponse,
  type LineCall,
  batchesFeature,
} from '../batches/batches.ts';
import type { BatchType } from '../catalog/catalog.ts';
import { Fault } from '../core/faults.ts';
import { errorResponse } from '../http/error-response.ts';
import type { HttpServer } from '../http/http.ts';
import { readResponse } from '../http/internal-call.ts';
import type { Feature } from '../http/route.ts';
import { type Caller, walletOfAccount } from '../identity/identity.ts';
import type { Wallets } from '../wallet/wallet.ts';
import type { FeatureParts } from './feature-parts.ts';
import type { ServerMetrics } from './metrics.ts';

/**
 * Routes that take JSON and give JSON, whole, with the type of the model that their requests name.
 */
const ENDPOINTS: Readonly<Record<string, BatchType>> = {
  '/chat/completions': 'text',
  '/completions': 'text',
  '/responses': 'text',
  '/messages': 'text',
  '/embeddings': 'embedding',
  '/images/generations': 'image',
  '/images/edits': 'image',
  '/moderations': 'moderation',
  '/rerank': 'rerank',
};

/** A refusal is some sentences. */
const MAX_REFUSAL_BYTES = 1024 * 1024;
/** Names are told back as far as that. */
const MAX_SHOWN_CHARS = 100;

export interface BatchesWiring {
  readonly server: HttpServer;
  readonly wallets: Wallets;
  readonly metrics: ServerMetrics;
}

export function batches(
  shared: FeatureParts,
  { server, wallets, metrics }: BatchesWiring,
): Feature {
  const { config, stores, sales, clock, ids, log } = shared;
  const isServed = (path: string): boolean =>
    server.routes.some((route) => route.path === path && route.sells !== undefined);
  return batchesFeature({
    store: stores.store,
    settings: config.current.batches,
    host: {
      ...modelsOf(shared, isServed),
      call: (call) => run(shared, server, wallets, call),
      isClosing: () => server.isClosing,
      ran: (result) => metrics.batchRequestRan(result),
    },
    endpoints: () => Object.keys(ENDPOINTS).filter(isServed),
    // Anybody can make wallets, and fill the room that all share.
    requireCredit: async (caller) => {
      if (walletOfAccount(caller.accountId) !== undefined) await sales.requireCredit(caller);
    },
    clock,
    ids,
    log,
  });
}

function modelsOf(
  { catalog, engines }: FeatureParts,
  isServed: (path: string) => boolean,
): Pick<BatchHost, 'endpoint' | 'isStarting' | 'hasCapacity'> {
  const resolve = (path: string, model: string) => {
    const type = ENDPOINTS[path];
    return type === undefined ? undefined : catalog.resolve(model, type)?.model;
  };
  const isStarting = (): boolean => catalog.starting() !== undefined;
  const modelProblem = (path: string, name: string): string | undefined => {
    const model = resolve(path, name);
    const shown = name.slice(0, MAX_SHOWN_CHARS);
    if (model?.batch === false) return `The model "${shown}" is not offered in batches`;
    // What names none, or one that its route knows better, is refused by the route.
    if (model !== undefined || name === '') return undefined;
    return `The endpoint has no model "${shown}"; choose one from GET /models`;
  };
  return {
    endpoint: (path): Endpoint | undefined => {
      if (!isServed(path)) return undefined;
      return { path, modelProblem: (model) => modelProblem(path, model) };
    },
    isStarting,
    hasCapacity: (path, name) => {
      const model = resolve(path, name);
      if (model === undefined) return !isStarting();
      // A model without engines says so itself.
      return model.replicas.length === 0 || engines.hasSpareCapacity(model.replicas);
    },
  };
}

async function run(
  shared: FeatureParts,
  server: HttpServer,
  wallets: Wallets,
  { batch, path, body, deliver }: LineCall,
): Promise<LineResponse> {
  let caller: Caller;
  try {
    caller = await callerOf(shared, wallets, batch);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    // A key that was revoked, an account that was disabled: its requests are refused, one by one.
    const refusal = errorResponse(error, true);
    const { status } = refusal;
    const refused = Buffer.from(JSON.stringify(refusal.body));
    return { status, requestId: '', canRetry: false, body: refused };
  }
  const answer = await server.internal.run({
    caller: { ...caller, isBatch: true },
    method: 'POST',
    path,
    headers: {
      'content-type': 'application/json',
      [`x-${shared.config.current.service.name}-error-format`]: 'openai',
    },
    body,
    address: '',
    country: batch.country,
    countsFailures: false,
    deliver,
  });
  const { status, headers } = answer;
  const requestId = String(headers['x-request-id'] ?? '');
  if (status === 200) {
    // It was taken over when it was charged.
    for await (const _piece of answer.body);
    return { status, requestId, canRetry: false, body: NOTHING };
  }
  const canPass = status === 409 || status === 429 || status >= 500;
  return {
    status,
    requestId,
    canRetry: canPass && headers['x-should-retry'] !== 'false',
    body: await readResponse(answer, MAX_REFUSAL_BYTES),
  };
}

const NOTHING = Buffer.alloc(0);

/** Who asked for the batch, with what it may do now. Throws 401 and 403. */
async function callerOf(
  { stores }: FeatureParts,
  wallets: Wallets,
  { accountId, keyId, capId }: Batch,
): Promise<Caller> {
  const wallet = walletOfAccount(accountId);
  if (keyId === '' && wallet !== undefined) return await wallets.callerOfWallet(wallet, capId);
  const caller = await stores.identity.keys.callerOfId(keyId);
  return wallets.withStake === undefined ? caller : await wallets.withStake(caller);
}
