/**
 * Sends one request, single or batch, to one node and returns the reply for each item.
 *
 * It verifies the node's identity before the first request, enforces the caller's share, records
 * the node's health, and reduces all node failures to a few outcomes. It never selects another
 * node.
 */
import { Cancellation, type Cancelling } from '../core/cancellation.ts';
import type { Readable } from 'node:stream';
import type { RpcSection } from '../config/config.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { peekReply, type ReplySpan, scanReply } from '../json/json-spans.ts';
import { type CallIds, whoseId } from './call-ids.ts';
import type { Network } from './catalogue.ts';
import { faultOfStatus, type ItemResponse, judgeItem, type ReplySource } from './classify.ts';
import type { UpstreamFault } from './node-errors.ts';
import {
  type ByteBudget,
  type NodeFailure,
  type NodeReply,
  type RequestBody,
  sizeOf,
} from './node-client.ts';
import type { ClassFigures } from './node-figures.ts';
import type { Holder } from './node-share.ts';
import { plainId } from './splice.ts';
import { MIN_LIMIT_BYTES, type Upstream } from './upstream.ts';

export interface RunSettings extends Pick<
  RpcSection,
  'maxReplyBytes' | 'maxBatchReplyBytes' | 'totalTimeoutMs'
> {
  readonly clock: Clock;
  readonly callIds: CallIds;
  readonly budget: ByteBudget;
}

/** State of one run of a request, shared by its attempts. */
export interface RunState {
  readonly settings: RunSettings;
  readonly network: Network;
  /** The caller, for its share of nodes and memory and as witness of faults. */
  readonly caller: string;
  readonly signal: Cancelling | undefined;
  /** Monotonic time at which the run ends even if replies are missing. */
  readonly deadlineMs: number;
  /** Bytes of the budget that the replies of this run use; released when the run ends. */
  budgetBytes: number;
  attempts: number;
  isOver: boolean;
}

export interface StreamResponse {
  readonly kind: 'stream';
  readonly outcome: ItemResponse['outcome'];
  readonly head: Buffer;
  /** Position of the sent id in the head; -1 if it follows the result, in `rest`. */
  readonly idStart: number;
  readonly idEnd: number;
  readonly ownId: number;
  readonly rest: Readable;
}

export interface AttemptFault {
  readonly kind: 'fault';
  readonly fault: UpstreamFault;
  /** Whether the node may have processed the request. */
  readonly isSent: boolean;
  /** The caller disconnected; the fault is `timeout` if the node took unusually long. */
  readonly isAborted: boolean;
}

export type OneReply = ItemResponse | StreamResponse | AttemptFault;

interface Matched {
  readonly kind: 'items';
  /** In the order of the calls; `undefined` without a usable reply. */
  readonly responses: (ItemResponse | undefined)[];
  /** The node violates the batch rules: send the missing calls one by one. */
  readonly isIrregular: boolean;
  readonly fault: UpstreamFault | undefined;
}

type ManyReply = Matched | AttemptFault;

export interface AttemptOptions {
  readonly canStream: boolean;
  /** Whether the request may be sent again if its connection dies before a reply begins. */
  readonly mayRepeat: boolean;
  readonly timeoutMs: number;
  /** Wait for a slot of the node instead of giving up. */
  readonly mayWait: boolean;
  readonly figures: ClassFigures;
}

interface IdRange {
  readonly firstId: number;
  readonly count: number;
}

export class NodeAttempt {
  readonly upstream: Upstream;
  readonly isLast: boolean;
  /** Several callers share the reply: it continues when one of them disconnects. */
  readonly isShared: boolean;
  /** The node that would be called next. */
  readonly next: Upstream | undefined;
  readonly #run: RunState;
  #cancellation: Cancellation | undefined;

  constructor(
    run: RunState,
    upstream: Upstream,
    isLast: boolean,
    isShared: boolean,
    next?: Upstream,
  ) {
    this.#run = run;
    this.upstream = upstream;
    this.isLast = isLast;
    this.isShared = isShared;
    this.next = next;
  }

  /** A copy for one call, whose requests `cancel` ends; the attempt itself may send further calls. */
  cancellable(): NodeAttempt {
    const copy = new NodeAttempt(this.#run, this.upstream, this.isLast, this.isShared);
    const cancellation = new Cancellation();
    const signal = this.#signal;
    if (signal?.aborted === true) cancellation.abort();
    signal?.addEventListener('abort', () => cancellation.abort());
    copy.#cancellation = cancellation;
    return copy;
  }

  cancel(): void {
    this.#cancellation?.abort();
  }

  async callOne(body: RequestBody, ownId: number, options: AttemptOptions): Promise<OneReply> {
    const reply = await this.#exchange(body, 1, options);
    if ('kind' in reply) return reply;
    let response: ItemResponse | StreamResponse | UpstreamFault;
    if (reply.rest !== undefined) response = judgeStream(reply, reply.rest, ownId);
    else {
      const scan = scanReply(reply.body);
      const item = scan.ok && !scan.isBatch ? scan.items[0] : undefined;
      const whose = item === undefined ? 'none' : whoseId(reply.body, item, ownId);
      if (whose === 'none' && isSizeRejection(reply, body)) return this.#rejectSize(body);
      if (item === undefined) return this.fail(statusFault(reply));
      const { source } = this.upstream;
      response = judgeItem(reply.body, item, reply.status, source, whose === 'own');
      // The late reply to another call must not reach this caller.
      if (whose === 'other' && typeof response !== 'string') response = 'stray';
    }
    if (typeof response === 'string') return this.fail(response);
    this.upstream.noteResponse(reply.tookMs);
    return response;
  }

  async callMany(body: RequestBody, ids: IdRange, options: AttemptOptions): Promise<ManyReply> {
    const { source } = this.upstream;
    const reply = await this.#exchange(body, ids.count, options);
    if ('kind' in reply) return reply;
    const scan = scanReply(reply.body);
    const first = scan.ok && !scan.isBatch ? scan.items[0] : undefined;
    const whose = first === undefined ? 'none' : whoseId(reply.body, first, ids.firstId);
    if (whose === 'none' && isSizeRejection(reply, body)) return this.#rejectSize(body);
    // The items before an invalid one are usable, and the last node gets the others one by one.
    const isPart =
      !scan.ok && scan.isBatch && scan.reason !== 'count' && (scan.items.length > 0 || this.isLast);
    if (!scan.ok && !isPart) return this.fail(statusFault(reply));
    // One object for a batch: a fault of the node, or a node without batch support.
    const alone = first && judgeItem(reply.body, first, reply.status, source, false);
    if (typeof alone === 'string') return this.fail(alone);
    const matched = scan.isBatch ? matchItems(reply, scan.items, ids, source) : NO_BATCH;
    const fault = isPart ? 'broken' : matched.fault;
    if (fault === undefined) this.upstream.noteResponse(reply.tookMs);
    else this.upstream.noteFault(fault, this.#run.caller);
    const isNothing =
      !isPart && fault !== undefined && matched.responses.every((one) => one === undefined);
    return isNothing ? { kind: 'fault', fault, isSent: true, isAborted: false } : matched;
  }

  async #exchange(
    body: RequestBody,
    calls: number,
    options: AttemptOptions,
  ): Promise<NodeReply | AttemptFault> {
    const { upstream } = this;
    const run = this.#run;
    const { caller, deadlineMs, settings } = run;
    const sizeBytes = sizeOf(body);
    // A learned size limit only skips nodes while there are others.
    const isRefused = options.mayWait
      ? upstream.rejectsBytes(sizeBytes)
      : !upstream.acceptsBytes(sizeBytes);
    if (isRefused) return unsent('request-too-large');
    const free = upstream.isVerified ? upstream.share.take(caller, calls) : undefined;
    const holder = free ?? (await this.#admit(calls, options));
    if ('kind' in holder) return holder;
    const leftMs = deadlineMs - settings.clock.monotonicMs();
    if (leftMs <= 0) {
      upstream.share.give(holder);
      return unsent('timeout');
    }
    run.attempts += 1;
    const reply = await upstream.client.post({
      body,
      timeoutMs: Math.ceil(Math.min(leftMs, upstream.settings.timeoutMs, options.timeoutMs)),
      maxBytes: calls === 1 ? settings.maxReplyBytes : settings.maxBatchReplyBytes,
      canStream: options.canStream,
      mayRepeat: options.mayRepeat,
      budget: settings.budget,
      caller,
      signal: this.#signal,
    });
    options.figures.seconds.observe(reply.tookMs / SECOND_MS);
    return this.#received(reply, sizeBytes, holder);
  }

  /** Reserves a slot at a node; waits for one only if `mayWait` is set. */
  async #admit(calls: number, options: AttemptOptions): Promise<Holder | AttemptFault> {
    const { upstream } = this;
    if (!upstream.isVerified && !(await upstream.verify())) return unsent('transport');
    const { caller, deadlineMs, settings } = this.#run;
    const { share } = upstream;
    const holder = share.take(caller, calls);
    if (holder !== undefined) return holder;
    if (!options.mayWait) return unsent('quota');
    const waitMs = Math.max(0, deadlineMs - settings.clock.monotonicMs());
    const signal = this.#signal;
    const waited = await share.wait(caller, calls, waitMs, signal);
    return waited ?? { ...unsent('quota'), isAborted: signal?.aborted === true };
  }

  #received(
    reply: NodeReply | NodeFailure,
    sizeBytes: number,
    holder: Holder,
  ): NodeReply | AttemptFault {
    const { upstream } = this;
    const { share } = upstream;
    if (reply.ok && reply.rest !== undefined) reply.rest.once('close', () => share.give(holder));
    else share.give(holder);
    if (!reply.ok) {
      const { isSent, isAborted, tookMs } = reply;
      // A caller that gave up after a long wait indicates a slow node.
      const isLate = isAborted && isSent && tookMs > upstream.normalMs;
      const fault = isLate ? 'timeout' : reply.fault;
      if (isLate || !reply.isBlameless) upstream.noteFault(fault, this.#run.caller);
      return { kind: 'fault', fault, isSent, isAborted };
    }
    // The reply to a call that was not needed any more.
    if (this.#run.isOver) this.#run.settings.budget.give(this.#run.caller, reply.budgetBytes);
    else this.#run.budgetBytes += reply.budgetBytes;
    if (reply.status < 300 && sizeBytes >= MIN_LIMIT_BYTES) upstream.noteAccepted(sizeBytes);
    return reply;
  }

  /** Aborts when the caller disconnects, unless other callers share the reply. */
  get #signal(): Cancelling | undefined {
    return this.#cancellation ?? (this.isShared ? undefined : this.#run.signal);
  }

  #rejectSize(body: RequestBody): AttemptFault {
    this.upstream.noteTooLarge(sizeOf(body));
    // A request that was rejected unread had no effect.
    return unsent('request-too-large');
  }

  /** Records a fault of the node in a reply. */
  fail(fault: UpstreamFault): AttemptFault {
    this.upstream.noteFault(fault, this.#run.caller);
    return { kind: 'fault', fault, isSent: true, isAborted: false };
  }
}

const NO_BATCH: Matched = { kind: 'items', responses: [], isIrregular: true, fault: undefined };

function matchItems(
  { body, status }: NodeReply,
  items: readonly ReplySpan[],
  { firstId, count }: IdRange,
  source: ReplySource,
): Matched {
  const responses = Array.from<ItemResponse | undefined>({ length: count });
  const seen = new Uint8Array(count);
  let isIrregular = items.length !== count;
  let fault: UpstreamFault | undefined;
  for (const item of items) {
    const position = plainId(body, item.idStart, item.idEnd) - firstId;
    // A reply to no call, or a second reply to the same call: discard both, since either may be
    // wrong.
    if (position < 0 || position >= count || seen[position] === 1) {
      if (position >= 0 && position < count) responses[position] = undefined;
      isIrregular = true;
      continue;
    }
    seen[position] = 1;
    const response = judgeItem(body, item, status, source, true);
    if (typeof response === 'string') fault = response;
    else responses[position] = response;
  }
  return { kind: 'items', responses, isIrregular, fault };
}

/**
 * Whether a node rejected a request for its size before reading it. Not used for an object with an
 * id, which is the reply to a call: QuickNode reports a too large range of blocks that way.
 */
function isSizeRejection({ status }: NodeReply, body: RequestBody): boolean {
  return status === 413 && sizeOf(body) >= MIN_LIMIT_BYTES;
}

function judgeStream(
  reply: NodeReply,
  rest: Readable,
  ownId: number,
): StreamResponse | UpstreamFault {
  const { first, idStart, idEnd } = peekReply(reply.body);
  // An id after the result is checked at the end of the stream.
  const whose = idStart < 0 ? 'own' : whoseId(reply.body, { idStart, idEnd }, ownId);
  if (first === 'none' || whose === 'other') {
    rest.destroy();
    return whose === 'other' ? 'stray' : statusFault(reply);
  }
  const success = whose === 'own' ? 'success' : 'unknown-id';
  const outcome = first === 'result' ? success : 'error';
  return { kind: 'stream', outcome, head: reply.body, idStart, idEnd, ownId, rest };
}

function statusFault({ status }: NodeReply): UpstreamFault {
  // A success status without a JSON-RPC body means a broken node.
  return status >= 200 && status < 300 ? 'broken' : faultOfStatus(status);
}

function unsent(fault: UpstreamFault): AttemptFault {
  return { kind: 'fault', fault, isSent: false, isAborted: false };
}

export function countReply(to: ClassFigures, reply: OneReply): void {
  if (reply.kind === 'fault') {
    if (isOfNode(reply)) to.fault.value += 1;
  } else if (reply.outcome === 'success') to.success.value += 1;
  else if (reply.kind === 'response' && reply.error?.lack !== undefined) to.lacking.value += 1;
  else to.error.value += 1;
}

/** Whether a fault is not one of the caller or of a limit of Farebox. */
function isOfNode({ fault, isSent, isAborted }: AttemptFault): boolean {
  if (isAborted || fault === 'too-large') return false;
  return isSent || fault === 'transport' || fault === 'unread';
}
