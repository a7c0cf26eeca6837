/**
 * A batch: exactly one answer for each item, in the order asked, under the caller's ids, whatever
 * the node did. Items that no node answered carry an error of ours and cost nothing.
 */
import { assert } from '../core/assert.ts';
import type { Fault } from '../core/faults.ts';
import type { Admission, Call } from './admission.ts';
import { callerId, MAX_BATCH_ITEMS } from './admission.ts';
import {
  INTERNAL_ERROR_CODE,
  INVALID_REQUEST_CODE,
  REFUSED_MESSAGE,
  REQUEST_TOO_LARGE_MESSAGE,
  requestTooLarge,
  TOO_LARGE_MESSAGE,
  UNANSWERED_MESSAGE,
  unansweredFault,
} from './answer.ts';
import type { RpcAnswer } from './answer.ts';
import { askMany, askOne } from './ask.ts';
import type { AskFault, AskOptions, ItemAnswer, RunContext } from './ask.ts';
import { itemCredits } from './billing.ts';
import { mayRepeat } from './broadcast.ts';
import type { NodeKind } from './catalogue.ts';
import { recognisedHash, SECOND_OPINION_MS } from './run-single.ts';
import type { RunParts } from './run-single.ts';
import { addError, addReply, addRequest, addResult, joinBatch, plainId } from './splice.ts';
import type { Slices } from './splice.ts';
import type { Upstream } from './upstream.ts';

/** Calls asked one by one at the same time when a node does not keep to the batch rules. */
const EXPANDED_AT_ONCE = 8;
/** What an item may grow by in a batch of our making. */
const ID_ROOM_BYTES = 16;

/** One item on its way. */
interface Item {
  readonly call: Call;
  answer: ItemAnswer | undefined;
  /** Result bytes of our own: from the cache, or a recognised broadcast. */
  result: Buffer | undefined;
  last: AskFault | undefined;
  wasSecondOpinionAsked: boolean;
}

interface Pass {
  readonly run: RunContext;
  readonly admission: Admission;
  readonly upstream: Upstream;
  readonly mayWait: boolean;
}

/** Runs a batch. Throws a Fault when no node answered any of it. */
export async function runBatch(
  run: RunContext,
  parts: RunParts,
  admission: Admission,
): Promise<RpcAnswer> {
  const items: Item[] = admission.calls.map((call) => ({
    call,
    answer: undefined,
    result: cachedResult(parts, admission, call),
    last: undefined,
    wasSecondOpinionAsked: false,
  }));
  const nodes: Item[] = [];
  const bundlers: Item[] = [];
  for (const item of items) {
    if (item.result !== undefined) continue;
    (parts.group.kindFor(item.call.method.node) === 'node' ? nodes : bundlers).push(item);
  }
  const [ofNodes, ofBundlers] = await Promise.all([
    nodes.length > 0 ? runKind(run, parts, admission, 'node', nodes) : undefined,
    bundlers.length > 0 ? runKind(run, parts, admission, 'bundler', bundlers) : undefined,
  ]);
  keepResults(parts, admission, items);
  return finish(run, parts, admission, items, ofNodes ?? ofBundlers);
}

/** Asks the nodes of one kind in turn; the reply itself when it can be passed on as it is. */
async function runKind(
  run: RunContext,
  parts: RunParts,
  admission: Admission,
  kind: NodeKind,
  items: readonly Item[],
): Promise<Buffer | undefined> {
  const candidates = parts.group.candidates(kind, parts.caller);
  let whole: Buffer | undefined;
  for (const [index, upstream] of candidates.entries()) {
    const open = index === 0 ? items : items.filter(isOpen);
    if (open.length === 0 || run.clock.monotonicMs() >= run.deadlineMs) break;
    const pass: Pass = { run, admission, upstream, mayWait: index === candidates.length - 1 };
    const isFirst =
      open.length === admission.calls.length && open.every((item) => item.answer === undefined);
    const reply = await askAll(pass, open);
    whole = isFirst ? reply : undefined;
    if (open.some((item) => item.answer !== undefined)) {
      if (index === 0 || open.length === items.length)
        parts.group.stick(kind, parts.caller, upstream);
      if (await recogniseBroadcasts(pass, open)) whole = undefined;
    }
    if (items.every((item) => !isOpen(item))) break;
    if (items.some((item) => item.last?.isAborted === true)) break;
  }
  return whole;
}

/** Whether another node should be asked: no answer yet, or a null worth a second opinion. */
function isOpen(item: Item): boolean {
  const { answer, call } = item;
  if (answer !== undefined) {
    return answer.isNull && call.method.retry === 'safe-notnull' && !item.wasSecondOpinionAsked;
  }
  if (item.last === undefined) return true;
  return item.last.fault !== 'too-large' && (!item.last.isSent || mayRepeat(call));
}

async function askAll(pass: Pass, items: readonly Item[]): Promise<Buffer | undefined> {
  const { maxBatch } = pass.upstream.settings;
  const isWhole = items.length > 1 && items.length <= maxBatch;
  if (isWhole && pass.upstream.takesBytes(pass.admission.body.length)) return askChunk(pass, items);
  await Promise.all(
    chunks(items, Math.max(1, maxBatch), pass.upstream).map(async (chunk) =>
      chunk.length === 1 ? expand(pass, chunk) : askChunk(pass, chunk),
    ),
  );
  return undefined;
}

/** The reply itself when it can be passed on as it is. */
async function askChunk(pass: Pass, items: readonly Item[]): Promise<Buffer | undefined> {
  const { run, admission, upstream } = pass;
  const ownIds = items.length === admission.calls.length ? plainIds(admission) : undefined;
  const body = ownIds === undefined ? withOurIds(admission, items) : admission.body;
  const ids = ownIds ?? items.map((_, position) => position);
  const reply = await askMany(run, upstream, body, ids, askOptions(pass, items));
  if (reply.kind === 'fault') {
    if (reply.fault === 'request-too-large') return askHalves(pass, items);
    for (const item of items) noteFault(item, reply);
    return undefined;
  }
  let isComplete = true;
  for (const [position, item] of items.entries()) {
    noteAnswer(item, reply.answers[position]);
    if (item.answer === undefined) isComplete = false;
  }
  if (reply.isIrregular) {
    await expand(
      pass,
      items.filter((item) => item.answer === undefined && mayRepeat(item.call)),
    );
  }
  return ownIds !== undefined && isComplete ? reply.whole : undefined;
}

/** What a node does not take in one request it may take in two: it has read none of it. */
async function askHalves(pass: Pass, items: readonly Item[]): Promise<undefined> {
  const middle = Math.ceil(items.length / 2);
  const halves = [items.slice(0, middle), items.slice(middle)];
  await Promise.all(
    halves.map(async (half) => (half.length === 1 ? expand(pass, half) : askChunk(pass, half))),
  );
  return undefined;
}

/** The ids that we give the items of a batch: their positions. */
const OUR_IDS: readonly Buffer[] = Array.from({ length: MAX_BATCH_ITEMS }, (_, position) =>
  Buffer.from(String(position)),
);

function withOurIds(admission: Admission, items: readonly Item[]): Buffer {
  return joinBatch(items.length, (slices, position) => {
    const item = items[position];
    const id = OUR_IDS[position];
    assert(item !== undefined && id !== undefined, 'a batch has at most 100 items');
    addRequest(slices, admission.body, item.call.span, id);
  });
}

/** Asks items one by one; whatever comes is noted on them. */
async function expand(pass: Pass, items: readonly Item[]): Promise<undefined> {
  const { run, admission, upstream } = pass;
  const queue = [...items];
  async function work(): Promise<void> {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      const { span } = item.call;
      const body = admission.body.subarray(span.start, span.end);
      const reply = await askOne(
        run,
        upstream,
        body,
        callerId(admission, item.call),
        askOptions(pass, [item]),
      );
      if (reply.kind === 'fault') noteFault(item, reply);
      else if (reply.kind === 'answer') noteAnswer(item, reply.answer);
    }
  }
  await Promise.all(Array.from({ length: Math.min(EXPANDED_AT_ONCE, items.length) }, work));
  return undefined;
}

function askOptions(pass: Pass, items: readonly Item[]): AskOptions {
  const isSecondOpinion = items.every((item) => item.answer !== undefined);
  for (const item of items) if (item.answer !== undefined) item.wasSecondOpinionAsked = true;
  const canStream = false;
  const isRepeatable = items.every((item) => mayRepeat(item.call));
  if (!isSecondOpinion) return { canStream, mayRepeat: isRepeatable, mayWait: pass.mayWait };
  return { canStream, mayRepeat: isRepeatable, mayWait: false, timeoutMs: SECOND_OPINION_MS };
}

function noteAnswer(item: Item, answer: ItemAnswer | undefined): void {
  if (answer === undefined) {
    item.last = { kind: 'fault', fault: 'broken', isSent: true, isAborted: false };
  } else if (item.answer === undefined || (answer.outcome === 'success' && !answer.isNull)) {
    // A second opinion counts only when it knows more.
    item.answer = answer;
  }
}

function noteFault(item: Item, fault: AskFault): void {
  const before = item.last;
  // What a node refused as such stays refused, whatever the next node fails of.
  item.last = {
    ...(before?.fault === 'refused' ? before : fault),
    isSent: fault.isSent || before?.isSent === true,
  };
}

async function recogniseBroadcasts(pass: Pass, items: readonly Item[]): Promise<boolean> {
  let isAny = false;
  for (const item of items) {
    if (item.answer?.error === undefined) continue;
    const hash = await recognisedHash(
      pass.run,
      pass.upstream,
      pass.admission,
      item.call,
      item.answer,
    );
    if (hash === undefined) continue;
    item.result = Buffer.from(`"${hash}"`);
    isAny = true;
  }
  return isAny;
}

function finish(
  run: RunContext,
  parts: RunParts,
  admission: Admission,
  items: readonly Item[],
  whole: Buffer | undefined,
): RpcAnswer {
  const retries = Math.max(0, run.attempts - 1);
  const isAnswered = items.some(
    (item) => item.answer ?? item.result ?? (item.last?.fault === 'refused' || undefined),
  );
  if (!isAnswered) {
    const last = items.find((item) => item.last !== undefined)?.last;
    if (last?.isAborted !== true || run.signal?.aborted !== true)
      throw unanswered(parts, admission, items, last);
  }
  let credits = 0;
  for (const item of items) credits += creditsOf(item);
  if (run.signal?.aborted === true && items.some((item) => item.last?.isAborted === true)) {
    return { kind: 'abandoned', body: Buffer.alloc(0), rest: undefined, credits, retries };
  }
  const body =
    whole ?? joinBatch(items.length, (slices, index) => writeItem(slices, admission, items[index]));
  return { kind: 'answered', body, rest: undefined, credits, retries };
}

function unanswered(
  parts: RunParts,
  admission: Admission,
  items: readonly Item[],
  last: AskFault | undefined,
): Fault {
  const large = items.find((item) => item.last?.fault === 'request-too-large');
  if (large === undefined) return unansweredFault(last, parts.group.hasOpen());
  const kind = parts.group.kindFor(large.call.method.node);
  return requestTooLarge(admission, parts.group.requestLimitBytes(kind));
}

function creditsOf(item: Item): number {
  const { answer, call, last } = item;
  if (item.result !== undefined) return call.credits;
  if (answer !== undefined) return itemCredits(answer.outcome, call.credits);
  // The caller left while a node worked on it: the node's work is due.
  if (last?.isAborted === true && last.isSent) return call.credits;
  return itemCredits(last?.fault === 'refused' ? 'error' : 'unanswered', call.credits);
}

function writeItem(slices: Slices, admission: Admission, item: Item | undefined): void {
  if (item === undefined) return;
  const id = callerId(admission, item.call);
  if (item.result !== undefined) addResult(slices, id, item.result);
  else if (item.answer !== undefined) addReply(slices, item.answer.bytes, item.answer.span, id);
  else if (item.last?.fault === 'refused')
    addError(slices, id, INVALID_REQUEST_CODE, REFUSED_MESSAGE);
  else if (item.last?.fault === 'too-large')
    addError(slices, id, INTERNAL_ERROR_CODE, TOO_LARGE_MESSAGE);
  else if (item.last?.fault === 'request-too-large')
    addError(slices, id, INVALID_REQUEST_CODE, REQUEST_TOO_LARGE_MESSAGE);
  else addError(slices, id, INTERNAL_ERROR_CODE, UNANSWERED_MESSAGE);
}

function cachedResult(parts: RunParts, admission: Admission, call: Call): Buffer | undefined {
  const sharing = parts.cache.sharing(call);
  if (sharing === undefined || sharing === 'head') return undefined;
  return parts.cache.get(parts.cache.key(admission, call));
}

function keepResults(parts: RunParts, admission: Admission, items: readonly Item[]): void {
  for (const { call, answer } of items) {
    const sharing = answer === undefined ? undefined : parts.cache.sharing(call);
    if (answer !== undefined && sharing !== undefined)
      parts.cache.keep(parts.cache.key(admission, call), sharing, answer);
  }
}

/**
 * The caller's ids when they are growing integers in their plain spelling, as most clients send
 * them: then no node can confuse them, and the caller's own bytes can travel.
 */
function plainIds(admission: Admission): readonly number[] | undefined {
  const ids: number[] = [];
  let before = -1;
  for (const { span } of admission.calls) {
    const id = plainId(admission.body, span.idStart, span.idEnd);
    if (id <= before) return undefined;
    ids.push(id);
    before = id;
  }
  return ids;
}

/** Items for one request each, by their number and by the bytes that the node takes. */
function chunks(items: readonly Item[], size: number, upstream: Upstream): (readonly Item[])[] {
  const parts: Item[][] = [];
  let part: Item[] = [];
  let partBytes = 0;
  for (const item of items) {
    const { start, end } = item.call.span;
    // With its comma, and room for an id of our own.
    const bytes = end - start + ID_ROOM_BYTES;
    if (part.length === size || (part.length > 0 && !upstream.takesBytes(partBytes + bytes))) {
      parts.push(part);
      part = [];
      partBytes = 0;
    }
    part.push(item);
    partBytes += bytes;
  }
  return [...parts, part];
}
