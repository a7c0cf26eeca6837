/**
 * One call: the caller's bytes go to a node untouched, and the node's bytes come back untouched
 * but for the id. Nodes are asked in turn only as far as the method's retry class allows.
 */
import { assert } from '../core/assert.ts';
import type { Admission, Call } from './admission.ts';
import { callerId, hasOwnId } from './admission.ts';
import type { AnswerCache } from './answer-cache.ts';
import type { Fault } from '../core/faults.ts';
import {
  INVALID_REQUEST_CODE,
  REFUSED_MESSAGE,
  requestTooLarge,
  unansweredFault,
} from './answer.ts';
import type { RpcAnswer } from './answer.ts';
import { askOne } from './ask.ts';
import type { AskFault, ItemAnswer, RunContext, StreamAnswer } from './ask.ts';
import { ERROR_ITEM_CREDITS, itemCredits } from './billing.ts';
import { broadcastVerdict, mayRepeat, transactionHash } from './broadcast.ts';
import { addError, addReply, addRequest, addResult, isSpan, Slices } from './splice.ts';
import type { UpstreamGroup } from './upstream-group.ts';
import type { Upstream } from './upstream.ts';

/** A second opinion on a null is worth this wait, not more. */
export const SECOND_OPINION_MS = 3_000;
/** Ids that we put where the caller sent none; a node would not answer a call without one. */
const OWN_ID = Buffer.from('0');
const NULL_RESULT_ID = Buffer.from('1');

export interface RunParts {
  readonly group: UpstreamGroup;
  readonly cache: AnswerCache;
  readonly caller: string;
}

type Outcome =
  | { readonly kind: 'answer'; readonly answer: ItemAnswer }
  | { readonly kind: 'hash'; readonly hash: string }
  | StreamAnswer
  | { readonly kind: 'none'; readonly last: AskFault | undefined };

/** Runs a request that is one object. Throws a Fault when no node answered. */
export async function runSingle(
  run: RunContext,
  parts: RunParts,
  admission: Admission,
  call: Call,
): Promise<RpcAnswer> {
  const sharing = parts.cache.sharing(call);
  if (sharing === undefined) {
    return finish(run, parts, admission, call, await walk(run, parts, admission, call, ALONE));
  }
  const key = parts.cache.key(admission, call);
  const kept = parts.cache.get(key);
  if (kept !== undefined) return fromResult(run, admission, call, kept);
  // A merged question must not end because one of those who wait for it left.
  const shared: RunContext = { ...run, signal: undefined };
  const answer = await parts.cache.merge(key, async () => {
    const options = { canStream: false, mayWait: false };
    const outcome = await walk(shared, parts, admission, call, options).finally(() => {
      run.attempts = shared.attempts;
      run.heldBytes = shared.heldBytes;
    });
    if (outcome.kind === 'none') {
      // One caller's wait for its share is not a wait of those who ask the same.
      if (outcome.last?.fault === 'quota' && !outcome.last.isSent) return undefined;
      throw unanswered(parts, admission, call, outcome.last);
    }
    assert(outcome.kind === 'answer', 'a shared read is neither streamed nor a broadcast');
    parts.cache.keep(key, sharing, outcome.answer);
    return outcome.answer;
  });
  const outcome: Outcome =
    answer === undefined
      ? await walk(run, parts, admission, call, ALONE)
      : { kind: 'answer', answer };
  return finish(run, parts, admission, call, outcome);
}

interface WalkOptions {
  readonly canStream: boolean;
  /** Whether the last node may be waited for. */
  readonly mayWait: boolean;
}

const ALONE: WalkOptions = { canStream: true, mayWait: true };

async function walk(
  run: RunContext,
  parts: RunParts,
  admission: Admission,
  call: Call,
  { canStream, mayWait }: WalkOptions,
): Promise<Outcome> {
  const isOwnId = hasOwnId(admission.body, call.span);
  const id = isOwnId ? callerId(admission, call) : OWN_ID;
  const body = isOwnId ? admission.body : requestWithId(admission.body, call, id);
  const kind = parts.group.kindFor(call.method.node);
  const candidates = parts.group.candidates(kind, parts.caller);
  let nullAnswer: { readonly answer: ItemAnswer; readonly upstream: Upstream } | undefined;
  let last: AskFault | undefined;
  for (const [index, upstream] of candidates.entries()) {
    const options = {
      canStream: canStream && isOwnId,
      mayRepeat: mayRepeat(call),
      mayWait: mayWait && index === candidates.length - 1 && nullAnswer === undefined,
      ...(nullAnswer === undefined ? {} : { timeoutMs: SECOND_OPINION_MS }),
    };
    if (run.clock.monotonicMs() >= run.deadlineMs) break;
    const reply = await askOne(run, upstream, body, id, options);
    if (reply.kind === 'fault') {
      if (nullAnswer !== undefined) break;
      last = last?.fault === 'refused' ? last : reply;
      if (reply.isAborted || reply.fault === 'too-large' || (reply.isSent && !mayRepeat(call)))
        break;
      continue;
    }
    if (reply.kind === 'stream') {
      parts.group.stick(kind, parts.caller, upstream);
      return reply;
    }
    const { answer } = reply;
    if (
      nullAnswer === undefined &&
      answer.isNull &&
      call.method.retry === 'safe-notnull' &&
      index + 1 < candidates.length
    ) {
      nullAnswer = { answer, upstream };
      continue;
    }
    // The second opinion counts only when it knows more.
    if (nullAnswer !== undefined && (answer.isNull || answer.outcome !== 'success')) break;
    parts.group.stick(kind, parts.caller, upstream);
    if (answer.error === undefined) return reply;
    const hash = await recognisedHash(run, upstream, admission, call, answer);
    return hash === undefined ? reply : { kind: 'hash', hash };
  }
  if (nullAnswer === undefined) return { kind: 'none', last };
  parts.group.stick(kind, parts.caller, nullAnswer.upstream);
  return { kind: 'answer', answer: nullAnswer.answer };
}

/** The hash of a raw transaction that the node refused only because it has it already. */
export async function recognisedHash(
  run: RunContext,
  upstream: Upstream,
  admission: Admission,
  call: Call,
  answer: ItemAnswer,
): Promise<string | undefined> {
  const verdict = broadcastVerdict(call, answer);
  if (verdict === 'no') return undefined;
  const hash = await transactionHash(admission, call);
  if (hash === undefined || verdict === 'known') return hash;
  const question = Buffer.from(
    `{"jsonrpc":"2.0","id":1,"method":"eth_getTransactionByHash","params":["${hash}"]}`,
  );
  const reply = await askOne(run, upstream, question, NULL_RESULT_ID, {
    canStream: false,
    mayRepeat: true,
    mayWait: false,
  });
  const isThere =
    reply.kind === 'answer' && reply.answer.outcome === 'success' && !reply.answer.isNull;
  return isThere ? hash : undefined;
}

function finish(
  run: RunContext,
  parts: RunParts,
  admission: Admission,
  call: Call,
  outcome: Outcome,
): RpcAnswer {
  const retries = Math.max(0, run.attempts - 1);
  switch (outcome.kind) {
    case 'answer': {
      const { answer } = outcome;
      const credits = itemCredits(answer.outcome, call.credits);
      return {
        kind: 'answered',
        body: replyBody(admission, call, answer),
        rest: undefined,
        credits,
        retries,
      };
    }
    case 'hash':
      return fromResult(run, admission, call, Buffer.from(`"${outcome.hash}"`));
    case 'stream': {
      const credits = itemCredits(outcome.outcome, call.credits);
      return {
        kind: 'answered',
        body: streamHead(admission, call, outcome),
        rest: outcome.rest,
        credits,
        retries,
      };
    }
    case 'none':
      return withoutAnswer(run, parts, admission, call, outcome.last);
  }
}

function unanswered(
  parts: RunParts,
  admission: Admission,
  call: Call,
  last: AskFault | undefined,
): Fault {
  if (last?.fault === 'request-too-large') {
    const kind = parts.group.kindFor(call.method.node);
    return requestTooLarge(admission, parts.group.requestLimitBytes(kind));
  }
  return unansweredFault(last, parts.group.hasOpen());
}

function withoutAnswer(
  run: RunContext,
  parts: RunParts,
  admission: Admission,
  call: Call,
  last: AskFault | undefined,
): RpcAnswer {
  const retries = Math.max(0, run.attempts - 1);
  if (last?.isAborted === true && run.signal?.aborted === true) {
    return {
      kind: 'abandoned',
      body: Buffer.alloc(0),
      rest: undefined,
      credits: last.isSent ? call.credits : 0,
      retries,
    };
  }
  if (last?.fault !== 'refused') throw unanswered(parts, admission, call, last);
  // Billing extra: a plain 4xx of the node is billed like an error item.
  const slices = new Slices();
  addError(slices, callerId(admission, call), INVALID_REQUEST_CODE, REFUSED_MESSAGE);
  return {
    kind: 'answered',
    body: slices.join(),
    rest: undefined,
    credits: ERROR_ITEM_CREDITS,
    retries,
  };
}

function fromResult(run: RunContext, admission: Admission, call: Call, result: Buffer): RpcAnswer {
  const slices = new Slices();
  addResult(slices, callerId(admission, call), result);
  return {
    kind: 'answered',
    body: slices.join(),
    rest: undefined,
    credits: call.credits,
    retries: Math.max(0, run.attempts - 1),
  };
}

function replyBody(admission: Admission, call: Call, answer: ItemAnswer): Buffer {
  const id = callerId(admission, call);
  if (isSpan(answer.bytes, answer.span.idStart, answer.span.idEnd, id)) return answer.bytes;
  const slices = new Slices();
  addReply(slices, answer.bytes, answer.span, id);
  return slices.join();
}

/** The first bytes of a stream; an id that stands before the result is made the caller's. */
function streamHead(admission: Admission, call: Call, stream: StreamAnswer): Buffer {
  const id = callerId(admission, call);
  if (stream.idStart < 0 || isSpan(stream.head, stream.idStart, stream.idEnd, id))
    return stream.head;
  const slices = new Slices();
  slices.add(stream.head, 0, stream.idStart);
  slices.add(id);
  slices.add(stream.head, stream.idEnd);
  return slices.join();
}

function requestWithId(body: Buffer, call: Call, id: Buffer): Buffer {
  const slices = new Slices();
  addRequest(slices, body, call.span, id);
  return slices.join();
}
