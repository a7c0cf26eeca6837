/**
 * The result of a call from the responses of several nodes: which response is kept, which call goes
 * to a further node, and what the responses say about the nodes.
 */
import { OPEN_ARRAY } from '../json/json-skip.ts';
import type { Method } from './catalogue.ts';
import type { ItemResponse } from './classify.ts';
import type { AttemptOptions, NodeAttempt, OneReply, StreamResponse } from './node-attempt.ts';
import type { UpstreamFault } from './node-errors.ts';
import type { ClassFigures } from './node-figures.ts';
import type { Call } from './parse-request.ts';
import type { Upstream } from './upstream.ts';

/** Time limit for a second opinion on a null. */
const SECOND_OPINION_MS = 3_000;
export const BROKEN = { kind: 'fault', fault: 'broken', isSent: true, isAborted: false } as const;

/** The node and the caller of a response. */
export interface Source {
  readonly upstream: Upstream;
  readonly caller: string;
  /** `highest`: the highest block that a node of the network may have. */
  readonly network: { readonly highest: number };
}

/** Keeps the response of a node to a call if it is the best one so far. */
export function noteResponse(
  { upstream, caller, network }: Source,
  call: Call,
  response: ItemResponse | undefined,
  figures: ClassFigures,
): void {
  if (response === undefined) {
    call.fault = BROKEN;
    return;
  }
  const { capabilities, head = 0 } = upstream;
  const { blocks, method, response: before } = call;
  const lack = response.error?.lack;
  if (lack === 'method') capabilities.missing.note(method.name, caller);
  if (lack === 'capacity') capabilities.slow.note(method.name, caller);
  if (blocks?.from !== undefined) {
    const { from, to = from } = blocks;
    // A range may end after the newest block of the node: then the node may have its beginning.
    if (lack === 'data' && to <= head) capabilities.noteLack(method.history, from, head);
    else if (response.error === undefined && !isEmpty(response))
      capabilities.noteHas(method.history, from);
  }
  if (response.error === undefined) call.isDoubtful = isDoubtful(call, response, head, network);
  if (before !== undefined && !isBetter(response, before)) return;
  call.response = response;
  call.figures = figures;
}

/**
 * A further result counts only if it is not empty. Of two errors that say what the nodes lack, the
 * first is kept, unless that node did not even have the method.
 */
function isBetter(response: ItemResponse, before: ItemResponse): boolean {
  if (before.error === undefined) return response.outcome === 'success' && !isEmpty(response);
  const lack = response.error?.lack;
  return lack === undefined || (before.error.lack === 'method' && lack !== 'method');
}

/** Whether a node with the newest block `head` may return the empty result only by mistake. */
function isDoubtful(
  { blocks, method }: Call,
  response: ItemResponse,
  head: number,
  network: Source['network'],
): boolean {
  if (blocks === undefined || !isEmpty(response) || !isRead(method)) return false;
  const { from = 0, to = from } = blocks;
  // Another node may have the next blocks already, but no node has later ones.
  if (to > network.highest) return false;
  return head < to || (response.isNull && method.block === 0 && !method.name.endsWith('Index'));
}

/**
 * Whether `upstream` should be called as a further node: the call has no response, a null without
 * second opinion, an empty result for a block that a node may have, or an error that says what the
 * previous nodes lack.
 */
export function isOpen(call: Call, upstream: Upstream, caller: string): boolean {
  const { response, fault, method, hadSecondOpinion } = call;
  if (call.hedgedTo === upstream) return false;
  if (response?.error !== undefined) {
    const isLacking = response.error.lack !== undefined && isRead(method);
    return isLacking && !upstream.capabilities.missing.isPaused(method.name, caller);
  }
  if (call.isDoubtful) return true;
  if (response !== undefined)
    return response.isNull && method.retry === 'safe-notnull' && !hadSecondOpinion;
  if (fault === undefined) return true;
  return fault.fault !== 'too-large' && (!fault.isSent || method.mayRepeat);
}

export function isRead({ retry }: Method): boolean {
  return retry === 'safe' || retry === 'safe-notnull';
}

/** Whether a result is `null` or an empty list. */
function isEmpty({ bytes, span, isNull }: ItemResponse): boolean {
  const { resultStart, resultEnd } = span;
  return isNull || (resultEnd - resultStart === 2 && bytes[resultStart] === OPEN_ARRAY);
}

/** Records the methods for which the node was too slow, and those for which it no longer is. */
export function noteTime(
  { capabilities: { slow } }: Upstream,
  caller: string,
  calls: readonly Call[],
  reply: { readonly kind: string; readonly fault?: UpstreamFault | undefined },
): void {
  const isSlow = reply.kind === 'fault' && reply.fault === 'timeout';
  if (!isSlow && !slow.hasAny) return;
  for (const { method } of calls) {
    if (isSlow) slow.note(method.name, caller);
    else if (reply.kind !== 'fault') slow.forget(method.name, caller);
  }
}

/** Cost of an item with an error, and of a success whose id matches no request. */
const ERROR_ITEM_CREDITS = 5;

export function creditsOf(
  { response, credits, fault, result }: Call,
  stream: StreamResponse | undefined,
): number {
  const outcome = response?.outcome ?? stream?.outcome;
  if (result !== undefined || outcome === 'success') return credits;
  // A success is never cheaper than an error: the smallest tier is 20 credits. A plain 4xx of the
  // node is billed like an error item.
  return outcome !== undefined || fault?.fault === 'refused' ? ERROR_ITEM_CREDITS : 0;
}

/** Whether the reply to a read ends the call without a further node. */
export function isUsable(reply: OneReply): boolean {
  if (reply.kind !== 'response') return reply.kind === 'stream';
  return reply.error?.lack === undefined && !reply.isNull;
}

export function attemptOptions(
  attempt: NodeAttempt,
  calls: readonly Call[],
  canStream: boolean,
): AttemptOptions {
  const { figures } = attempt.upstream;
  const methodClass = calls[0]?.method.class ?? 'standard';
  let isSecondOpinion = true;
  let mayRepeat = true;
  for (const call of calls) {
    if (call.response?.isNull !== true) isSecondOpinion = false;
    else call.hadSecondOpinion = true;
    mayRepeat &&= call.method.mayRepeat;
  }
  return {
    canStream,
    mayRepeat,
    timeoutMs: isSecondOpinion ? SECOND_OPINION_MS : Infinity,
    mayWait: attempt.isLast && !attempt.isShared && !isSecondOpinion,
    figures: figures.of(methodClass),
  };
}
