/** Composes the batches feature: its endpoints, and running their requests in the name of the caller. */
import {
  type Batch,
  type BatchHost,
  type Endpoint,
  type LineResponse,
  type LineCall,
  batchesFeature,
} from '../batches/batches.ts';
import type { BatchType } from '../catalog/catalog.ts';
import { FAULTS, Fault } from '../core/faults.ts';
import { errorResponse } from '../http/error-response.ts';
import type { HttpServer } from '../http/http.ts';
import { readResponse } from '../http/internal-call.ts';
import type { Feature } from '../http/route.ts';
import { type Caller, walletOfAccount } from '../identity/identity.ts';
import type { Wallets } from '../wallet/wallet.ts';
import { type FeatureParts, walletCredit } from './feature-parts.ts';
import type { ServerMetrics } from './metrics.ts';

/** Routes that batches can use (JSON request, non-streaming JSON response), with the type of their models. */
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

/** Error responses are short. */
const MAX_ERROR_BYTES = 1024 * 1024;
/** Maximum length of a model name in an error message. */
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
  const { config, stores, clock, ids, log } = shared;
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
    // Without this rule anonymous callers could fill the shared storage.
    requireCredit: walletCredit(shared),
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
    // The route itself rejects a missing model.
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
      // The request to a model without engines fails with its own error.
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
    // For example a revoked key: each of its requests gets the error.
    const { status, body: errorBody } = errorResponse(error, true);
    const bytes = Buffer.from(JSON.stringify(errorBody));
    return { ...FINAL, status, requestId: '', body: bytes };
  }
  let fault: Fault | undefined;
  const response = await server.internal.run({
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
    failed: (given) => {
      fault = given;
    },
  });
  const { status, headers } = response;
  const requestId = String(headers['x-request-id'] ?? '');
  if (status === 200) {
    // `deliver` has received the body.
    for await (const _piece of response.body);
    return { ...FINAL, status, requestId, body: NOTHING };
  }
  const errorBody = await readResponse(response, MAX_ERROR_BYTES);
  return { ...retryOf(fault), status, requestId, body: errorBody };
}

const FINAL = { canRetry: false, isUnavailable: false };

/** By the error itself: protocols of agents have other statuses, and headers for their own clients. */
function retryOf(fault: Fault | undefined): Pick<LineResponse, 'canRetry' | 'isUnavailable'> {
  if (fault === undefined) return FINAL;
  const { status, code, options } = fault;
  const isTransient = status === 409 || status === 429 || status >= 500;
  return {
    canRetry: isTransient && (options.canRetry ?? FAULTS[code].canRetry),
    isUnavailable: status === 429 || status === 503,
  };
}

const NOTHING = Buffer.alloc(0);

/** Returns the caller of the batch with its current permissions. Throws 401 and 403. */
async function callerOf(
  { stores }: FeatureParts,
  wallets: Wallets,
  { accountId, keyId, capId }: Batch,
): Promise<Caller> {
  const wallet = walletOfAccount(accountId);
  if (keyId === '' && wallet !== undefined) return await wallets.callerOfWallet(wallet, capId);
  const { keys, members } = stores.identity;
  const known = await keys.callerOfId(keyId);
  const member = known.keyKind === 'MEMBER' ? await members.ofKey(keyId) : undefined;
  const caller = member === undefined ? known : { ...known, member };
  return wallets.withStake === undefined ? caller : await wallets.withStake(caller);
}
