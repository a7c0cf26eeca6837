/**
 * One question to one node: a request alone or a batch, and what came back for each item.
 *
 * It checks the node's identity before the first question, keeps the caller's share, notes its
 * health, and turns every way a node can misbehave into one of a few outcomes. It never decides
 * to ask another node.
 */
import type { Readable } from 'node:stream';
import type { Clock } from '../core/clock.ts';
import { peekReply, type ReplySpan, scanReply, spanString } from '../json/json-spans.ts';
import type { Network } from './catalogue.ts';
import { faultOfStatus, judgeItem } from './classify.ts';
import type { NodeError, UpstreamFault } from './classify.ts';
import { isSpan, plainId } from './splice.ts';
import { TransportError } from './transport.ts';
import type { ByteBudget, PostReply, TransportProblem } from './transport.ts';
import { MIN_LIMIT_BYTES } from './upstream.ts';
import type { Upstream } from './upstream.ts';

/** Everything that one run of a request carries from node to node. */
export interface RunContext {
  readonly network: Network;
  /** Whose request it is: the share of nodes and memory that it may take, and who saw a fault. */
  readonly caller: string;
  readonly clock: Clock;
  readonly budget: ByteBudget;
  readonly headBytes: number;
  readonly maxReplyBytes: number;
  readonly maxBatchReplyBytes: number;
  /** Monotonic time at which the run ends whatever is missing. */
  readonly deadlineMs: number;
  readonly signal: AbortSignal | undefined;
  /** What of the budget the replies of this run hold; given back when the run ends. */
  heldBytes: number;
  /** Exchanges with nodes, probes not counted. */
  attempts: number;
}

/** The answer of a node to one call. */
export interface ItemAnswer {
  readonly outcome: 'success' | 'error' | 'unknown-id';
  readonly bytes: Buffer;
  readonly span: ReplySpan;
  readonly isNull: boolean;
  readonly error: NodeError | undefined;
}

export interface StreamAnswer {
  readonly kind: 'stream';
  readonly outcome: 'success' | 'error';
  readonly head: Buffer;
  readonly idStart: number;
  readonly idEnd: number;
  readonly rest: Readable;
}

export interface AskFault {
  readonly kind: 'fault';
  readonly fault: UpstreamFault;
  /** Whether the node may have acted on the request. */
  readonly isSent: boolean;
  readonly isAborted: boolean;
}

export type OneReply =
  | { readonly kind: 'answer'; readonly answer: ItemAnswer }
  | StreamAnswer
  | AskFault;

export type ManyReply =
  | {
      readonly kind: 'items';
      /** By position of the question; undefined where no usable answer came. */
      readonly answers: readonly (ItemAnswer | undefined)[];
      /** The node does not keep to the batch rules: ask what is missing one by one. */
      readonly isIrregular: boolean;
      /** The reply itself when it holds exactly the answers in order. */
      readonly whole: Buffer | undefined;
    }
  | AskFault;

export interface AskOptions {
  readonly canStream: boolean;
  /** Whether the node may get it twice, when its connection dies before an answer begins. */
  readonly mayRepeat: boolean;
  /** Upper bound of this exchange, besides the node's own. */
  readonly timeoutMs?: number;
  /** Wait for a place at the node instead of giving up: there is no other node. */
  readonly mayWait: boolean;
}

const LETTER_N = 0x6e;
/**
 * A caller that left, our own memory limit, and a large request that the node closed on say nothing
 * about the node.
 */
const BLAMELESS: ReadonlySet<TransportProblem> = new Set(['aborted', 'memory', 'unread']);

/** Asks one call; `expectedId` is the id that the node should echo. */
export async function askOne(
  run: RunContext,
  upstream: Upstream,
  body: Buffer,
  expectedId: Buffer,
  options: AskOptions,
): Promise<OneReply> {
  const startedMs = run.clock.monotonicMs();
  const reply = await exchange(run, upstream, body, 1, run.maxReplyBytes, options);
  if ('kind' in reply) return reply;
  if (reply.rest !== undefined) return judgeStream(run, upstream, reply, reply.rest, startedMs);
  const scan = scanReply(reply.body);
  const item = scan.ok && !scan.isBatch ? scan.items[0] : undefined;
  if (isSizeRefusal(reply, item, body)) return refuseSize(upstream, body);
  if (item === undefined) return fail(run, upstream, statusFault(reply));
  const verdict = judgeItem(reply.body, item, reply.status, run.network.family);
  if (verdict.kind === 'fault') return fail(run, upstream, verdict.fault);
  upstream.noteAnswer(startedMs);
  return {
    kind: 'answer',
    answer: toAnswer(reply.body, item, verdict, isSameId(reply.body, item, expectedId)),
  };
}

/** Asks a batch whose items carry `expectedIds`, distinct integers in their plain spelling. */
export async function askMany(
  run: RunContext,
  upstream: Upstream,
  body: Buffer,
  expectedIds: readonly number[],
  options: AskOptions,
): Promise<ManyReply> {
  const startedMs = run.clock.monotonicMs();
  const reply = await exchange(
    run,
    upstream,
    body,
    expectedIds.length,
    run.maxBatchReplyBytes,
    options,
  );
  if ('kind' in reply) return reply;
  const scan = scanReply(reply.body);
  const first = scan.ok && !scan.isBatch ? scan.items[0] : undefined;
  if (isSizeRefusal(reply, first, body)) return refuseSize(upstream, body);
  if (!scan.ok) return fail(run, upstream, statusFault(reply));
  if (!scan.isBatch) {
    // One object for a batch: the trouble of the node, or a node that takes no batches.
    const verdict = first && judgeItem(reply.body, first, reply.status, run.network.family);
    if (verdict?.kind === 'fault') return fail(run, upstream, verdict.fault);
    upstream.noteAnswer(startedMs);
    return {
      kind: 'items',
      answers: expectedIds.map(() => undefined),
      isIrregular: true,
      whole: undefined,
    };
  }
  return matchItems(run, upstream, reply, scan.items, expectedIds, startedMs);
}

function matchItems(
  run: RunContext,
  upstream: Upstream,
  reply: PostReply,
  items: readonly ReplySpan[],
  expectedIds: readonly number[],
  startedMs: number,
): ManyReply {
  const { body } = reply;
  const answers: (ItemAnswer | undefined)[] = expectedIds.map(() => undefined);
  const seen = new Uint8Array(expectedIds.length);
  let positions: Map<number, number> | undefined;
  let isIrregular = items.length !== expectedIds.length;
  let isInOrder = !isIrregular;
  let fault: UpstreamFault | undefined;
  for (const [index, item] of items.entries()) {
    const id = plainId(body, item.idStart, item.idEnd);
    let position: number | undefined = index;
    if (id < 0 || id !== expectedIds[index]) {
      isInOrder = false;
      positions ??= new Map(expectedIds.map((expected, at) => [expected, at]));
      position = positions.get(id);
    }
    if (position === undefined || seen[position] === 1) {
      // An answer to nobody, or a second answer: neither may be trusted to be the right one.
      if (position !== undefined) answers[position] = undefined;
      isIrregular = true;
      continue;
    }
    seen[position] = 1;
    const verdict = judgeItem(body, item, reply.status, run.network.family);
    if (verdict.kind === 'fault') fault = verdict.fault;
    else answers[position] = toAnswer(body, item, verdict, true);
  }
  if (fault === undefined) upstream.noteAnswer(startedMs);
  else upstream.noteFault(fault, run.caller);
  if (fault !== undefined && answers.every((one) => one === undefined)) {
    return { kind: 'fault', fault, isSent: true, isAborted: false };
  }
  const isWhole = isInOrder && fault === undefined && !isIrregular;
  return { kind: 'items', answers, isIrregular, whole: isWhole ? body : undefined };
}

async function exchange(
  run: RunContext,
  upstream: Upstream,
  body: Buffer,
  calls: number,
  maxBytes: number,
  options: AskOptions,
): Promise<PostReply | AskFault> {
  // What is learnt spares a node where there is another; it refuses nobody by itself.
  const isRefused = options.mayWait
    ? upstream.refusesBytes(body.length)
    : !upstream.takesBytes(body.length);
  if (isRefused) return unsent('request-too-large');
  if (!upstream.isVerified && !(await upstream.verify())) return unsent('transport');
  const { share } = upstream;
  if (!share.take(run.caller, calls)) {
    if (!options.mayWait) return unsent('quota');
    const timeoutMs = Math.max(0, run.deadlineMs - run.clock.monotonicMs());
    const { caller, signal } = run;
    if (!(await share.wait(caller, calls, { timeoutMs, signal })))
      return { ...unsent('quota'), isAborted: signal?.aborted === true };
  }
  const leftMs = run.deadlineMs - run.clock.monotonicMs();
  if (leftMs <= 0) {
    share.give(run.caller);
    return unsent('quota');
  }
  run.attempts += 1;
  try {
    const reply = await upstream.post(body, {
      timeoutMs: Math.ceil(
        Math.min(leftMs, upstream.settings.timeoutMs, options.timeoutMs ?? leftMs),
      ),
      headBytes: run.headBytes,
      maxBytes,
      canStream: options.canStream,
      mayRepeat: options.mayRepeat,
      budget: run.budget,
      caller: run.caller,
      signal: run.signal,
    });
    run.heldBytes += reply.heldBytes;
    if (reply.status < 300 && body.length >= MIN_LIMIT_BYTES) upstream.noteTaken(body.length);
    if (reply.rest === undefined) share.give(run.caller);
    else reply.rest.once('close', () => share.give(run.caller));
    return reply;
  } catch (error) {
    share.give(run.caller);
    // Every failure of an exchange is an outcome; the next line decides whom it speaks against.
    return transportFault(run, upstream, error);
  }
}

function transportFault(run: RunContext, upstream: Upstream, error: unknown): AskFault {
  if (!(error instanceof TransportError)) throw error;
  const isAborted = error.problem === 'aborted';
  const fault: UpstreamFault = error.problem === 'too-large' ? 'too-large' : 'transport';
  if (!BLAMELESS.has(error.problem)) upstream.noteFault(fault, run.caller);
  return { kind: 'fault', fault, isSent: error.isSent, isAborted };
}

/**
 * Whether a node refused a request for its size before it read it. An object with the caller's id
 * is an answer to the call: QuickNode says that a range of blocks is too large in that way.
 */
function isSizeRefusal(reply: PostReply, item: ReplySpan | undefined, body: Buffer): boolean {
  if (reply.status !== 413 || body.length < MIN_LIMIT_BYTES) return false;
  return item === undefined || item.idStart < 0 || reply.body[item.idStart] === LETTER_N;
}

function refuseSize(upstream: Upstream, body: Buffer): AskFault {
  upstream.noteTooLarge(body.length);
  // A request that was refused unread has done nothing.
  return unsent('request-too-large');
}

function judgeStream(
  run: RunContext,
  upstream: Upstream,
  reply: PostReply,
  rest: Readable,
  startedMs: number,
): OneReply {
  const peek = peekReply(reply.body);
  if (peek.first === 'none') {
    rest.destroy();
    return fail(run, upstream, statusFault(reply));
  }
  upstream.noteAnswer(startedMs);
  return {
    kind: 'stream',
    outcome: peek.first === 'result' ? 'success' : 'error',
    head: reply.body,
    idStart: peek.idStart,
    idEnd: peek.idEnd,
    rest,
  };
}

function toAnswer(
  bytes: Buffer,
  span: ReplySpan,
  verdict:
    | { readonly kind: 'result'; readonly isNull: boolean }
    | { readonly kind: 'error'; readonly error: NodeError },
  isKnownId: boolean,
): ItemAnswer {
  if (verdict.kind === 'error')
    return { outcome: 'error', bytes, span, isNull: false, error: verdict.error };
  return {
    outcome: isKnownId ? 'success' : 'unknown-id',
    bytes,
    span,
    isNull: verdict.isNull,
    error: undefined,
  };
}

/** The same id, be it spelled otherwise or rounded to a double on its way through the node. */
function isSameId(bytes: Buffer, span: ReplySpan, expected: Buffer): boolean {
  if (isSpan(bytes, span.idStart, span.idEnd, expected)) return true;
  if (span.idStart < 0) return false;
  const text = spanString(expected, 0, expected.length);
  if (text !== undefined) return spanString(bytes, span.idStart, span.idEnd) === text;
  const given = Number(bytes.toString('latin1', span.idStart, span.idEnd));
  return given === Number(expected.toString('latin1'));
}

function statusFault(reply: PostReply): UpstreamFault {
  // A body that is no JSON-RPC reply under a status of success is a broken node.
  return reply.status >= 200 && reply.status < 300 ? 'broken' : faultOfStatus(reply.status);
}

function fail(run: RunContext, upstream: Upstream, fault: UpstreamFault): AskFault {
  upstream.noteFault(fault, run.caller);
  return { kind: 'fault', fault, isSent: true, isAborted: false };
}

function unsent(fault: UpstreamFault): AskFault {
  return { kind: 'fault', fault, isSent: false, isAborted: false };
}
